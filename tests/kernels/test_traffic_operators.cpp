// Bytes and FLOPs of the operators around linear attention, against numbers worked out by hand.
#include "kernels/traffic_attention.hpp"
#include "kernels/traffic_blocks.hpp"
#include "kernels/traffic_elementwise.hpp"
#include "kernels/traffic_exchange.hpp"
#include "kernels/traffic_gemm.hpp"
#include "kernels/traffic_linear_layer.hpp"
#include "kernels/traffic_moe.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;

namespace {

constexpr LinearShape kGdn{Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
constexpr AttentionShape kHeads{16, 2, 256};     // Qwen3.5-35B-A3B
constexpr MoeShape kExperts{2048, 256, 8, 512};  // likewise

}  // namespace

TEST_CASE("a product reads each operand once", "[traffic]") {
    const GemmTraffic t = gemm_traffic(3, 5, 7);
    CHECK(t.weights == 2 * 5 * 7);
    CHECK(t.activations == 2 * (3 * 7 + 3 * 5));
    CHECK(t.total() == 70 + 72);
    CHECK(t.flops == 2 * 3 * 5 * 7);
}

TEST_CASE("decode attention reads the context and the token just stored", "[traffic]") {
    CHECK(kv_token_bytes(kHeads) ==
          2048);  // K and V x 2 heads x 256 x 2 B; x 10 layers = 20,480 B per token of the model
    const AttentionTraffic t = attention_decode_traffic(kHeads, 4, 1000);
    CHECK(t.kv_read == 1004 * 2048);
    CHECK(t.kv_write == 0);
    CHECK(t.activations == 4 * (16 * 256 * 2) * 2);  // q in, o out
    CHECK(t.flops == 1004LL * 16 * 256 * 4);
    const AttentionTraffic store = kv_store_traffic(kHeads, 4);
    CHECK(store.kv_write == 4 * 2048);
    CHECK(store.activations == 4 * 2048);
    CHECK(store.total() == 8 * 2 * 256 * 4);  // 8 nkv d per token
}

TEST_CASE("decode attention over latents: one cached vector is key and value", "[traffic]") {
    // Kimi-Linear: 32 heads, a latent of 512 values and 64 with positions.
    const AttentionShape latent{32, 1, (512 + 64) / 2, 512};
    CHECK(kv_token_bytes(latent) == 2 * (512 + 64));
    const AttentionTraffic t = attention_decode_traffic(latent, 4, 1000);
    CHECK(t.kv_read == 1004 * 1152);
    CHECK(t.flops == 1004LL * 2 * 32 * ((512 + 64) + 512));
    CHECK(t.activations == 4 * 2 * 32 * ((512 + 64) + 512));  // q in, o out
}

TEST_CASE("prefill attention computes causal pairs", "[traffic]") {
    // 3 tokens after 5 cached: pairs 6 + 7 + 8 = 21 = n (p + (n + 1)/2).
    const AttentionTraffic t = attention_prefill_traffic(kHeads, 3, 5, 21);
    CHECK(t.kv_read == 8 * 2048);
    CHECK(t.flops == 21LL * 4 * 16 * 256);
    CHECK(t.activations == 3 * 4 * 16 * 256);
    // One token after p cached is a decode step.
    const AttentionTraffic one = attention_prefill_traffic(kHeads, 1, 100, 101);
    const AttentionTraffic decode = attention_decode_traffic(kHeads, 1, 100);
    CHECK(one.flops == decode.flops);
    CHECK(one.total() == decode.total());
}

TEST_CASE("experts that a batch touches", "[traffic]") {
    CHECK(expected_distinct_experts(kExperts, 1) == Approx(8.0).epsilon(1e-12));
    // Two tokens miss an expert with probability (248/256)^2.
    CHECK(expected_distinct_experts(kExperts, 2) == Approx(256.0 - 248.0 * 248.0 / 256.0).epsilon(1e-12));
    CHECK(expected_distinct_experts(kExperts, 32) ==
          Approx(163.0).margin(0.5));  // published for random routing
    CHECK(expected_distinct_experts(kExperts, 100'000) == Approx(256.0));

    const GemmTraffic up = moe_gate_up_traffic(kExperts, 1, 8.0);
    CHECK(up.weights == 8LL * 2 * 512 * 2048 * 2);
    CHECK(up.activations == 2 * (2048 + 8 * 1024));
    CHECK(up.flops == 2LL * 8 * 1024 * 2048);
    const GemmTraffic down = moe_down_traffic(kExperts, 1, 8.0);
    CHECK(down.weights == 8LL * 512 * 2048 * 2);
    CHECK(down.activations == 2 * 8 * (512 + 2048));
    CHECK(up.weights + down.weights == 2LL * 3 * 8 * 2048 * 512);  // 3 k h I active parameters
}

TEST_CASE("operators of a linear layer, per token", "[traffic]") {
    CHECK(conv_channels(kGdn) == 8192);
    CHECK(split_projection_bytes(kGdn) == 4 * 8192 + 4 * 32 * 128 + 8 * 32);
    CHECK(gated_norm_bytes(kGdn) == 6 * 32 * 128 + 4 * 32);
    // Decode: 16 C bytes per token with a kernel of 4: 2 in, 6 + 6 window, 2 out.
    const ConvTraffic conv = conv_traffic(kGdn, 4, 7, 7);
    CHECK(conv.window_read + conv.window_write + conv.activations == 16 * 8192 * 7);
    CHECK(conv.window_read == 7 * 49'152);
    CHECK(conv.weights == 2 * 4 * 8192);
    CHECK(conv.flops == 2LL * 4 * 8192 * 7);
    // Prefill of one sequence: 4 C per token, one window.
    CHECK(conv_traffic(kGdn, 4, 1, 100).activations == 4 * 8192 * 100);
    CHECK(conv_traffic(kGdn, 4, 1, 100).window_read == 49'152);
}

TEST_CASE("chunkwise prefill: 180,224 FLOP per token and value head at c = 64", "[traffic]") {
    const ChunkPrefillTraffic t = chunk_prefill_traffic(kGdn, 2, 100);
    CHECK(t.flops == 100LL * 32 * 180'224);
    CHECK(t.state_read == 2LL * 2 * 1024 * 1024);  // 2 MiB per sequence
    CHECK(t.state_write == t.state_read);
    // Per token: q, k, v (16,384) and fp32 g, beta (256) in, o (8,192) out, q and k through their norm (2 x
    // 8,192).
    CHECK(t.activations == 100LL * (16'384 + 256 + 8'192 + 16'384));
    CHECK(prefill_split_gates_bytes(kGdn) == 4 * 8192 + 32 * (2 + 2 + 4 + 4));
}

TEST_CASE("gates of KDA: one per channel of every head's key", "[traffic]") {
    // Kimi-Linear, 32 heads of 128 x 128: 4096 decays and 32 betas a token.
    constexpr LinearShape kda{Family::kKda, 32, 32, 128, 128, StateFormat::kFp32};
    CHECK(token_input_bytes(kda) == 3 * 8192 + 2 * (4096 + 32));
    CHECK(prefill_split_gates_bytes(kda) == 4 * 12'288 + (2 + 4) * (4096 + 32));
    // q, k, v and fp32 gates in, o out, q and k through their norm.
    CHECK(chunk_prefill_traffic(kda, 1, 100).activations ==
          100LL * (3 * 8192 + 4 * (4096 + 32) + 8192 + 2 * 2 * 8192));
}

TEST_CASE("chunkwise prefill of Mamba-2: 51,200 FLOP per token and head at 128 x 64 x 128", "[traffic]") {
    // Nemotron-3-Super: 128 heads of 64 channels, 8 groups of 128 states, chunks of 128 tokens.
    constexpr LinearShape super{Family::kMamba2, 8, 128, 128, 64, StateFormat::kFp32};
    const SsdPrefillTraffic t = ssd_prefill_traffic(super, 2, 1000);
    CHECK(t.state_read == 2LL * 128 * 128 * 64 * 4);
    CHECK(t.state_write == t.state_read);
    // 4 N P for the states, 2 Q P inside a chunk, 2 Q N g / heads for C B^T.
    CHECK(t.flops == 1000LL * 128 * (4 * 128 * 64 + 2 * 128 * 64 + 2 * 128 * 128 * 8 / 128));
    // Per token: x, B, C (bf16) and dt (fp32) in, y out; of its chunk's fp32 states and bf16 C B^T a 128th.
    const std::int64_t states = 4LL * 128 * 128 * 64, products = 2LL * 8 * 128 * 128;
    CHECK(t.activations ==
          1000 * (2 * (8192 + 2 * 1024) + 4 * 128 + 2 * 8192 + (4 * states + 2 * products) / 128));
}

TEST_CASE("ranks that hold the experts of a token", "[traffic]") {
    // 4 experts on 2 ranks, 2 drawn: of the 6 pairs, 2 lie on one rank and 4 on both.
    CHECK(expected_expert_ranks({1, 4, 2, 2}) == Approx((2 * 1 + 4 * 2) / 6.0));
    CHECK(expected_expert_ranks({1, 256, 1, 8}) == Approx(1.0));    // one expert, one rank
    CHECK(expected_expert_ranks({1, 256, 256, 8}) == Approx(8.0));  // all experts, all ranks
    CHECK(expected_expert_ranks({1, 256, 8, 1}) == Approx(1.0));    // nowhere else to go
    // 1 - C(224, 8) / C(256, 8) = 0.66183 of the ranks (SciPy's comb).
    CHECK(expected_expert_ranks({1, 256, 8, 8}) == Approx(8 * 0.66183).epsilon(1e-5));
}

TEST_CASE("all-to-all sends a token once to every rank of its experts", "[traffic]") {
    // All experts: to each of the other seven ranks over the links; eight rows read, eight written.
    const ExchangeTraffic all = exchange_traffic({4096, 256, 256, 8}, 100);
    CHECK(all.sent == 100LL * 7 * 4096);
    CHECK(all.dram == 100LL * 2 * 8 * 4096);
    // One expert: an eighth of the tokens stays.
    CHECK(exchange_traffic({4096, 256, 1, 8}, 800).sent == 700LL * 4096);
    CHECK(exchange_traffic({4096, 256, 8, 1}, 100) == ExchangeTraffic{0, 100LL * 2 * 4096});
}

TEST_CASE("element-wise operators, per row", "[traffic]") {
    CHECK(add_norm_bytes(2048) == 4 * 2 * 2048);
    CHECK(silu_mul_bytes(512) == (2 + 1) * 2 * 512);
    CHECK(qk_norm_rope_bytes(kHeads) == 2 * 2 * (2 * 16 + 2) * 256);
    CHECK(attention_gate_bytes(kHeads) == 3 * 2 * 16 * 256);
    CHECK(moe_top_k_bytes(kExperts) == 2 * 256 + 8 * 8);
    CHECK(moe_align_bytes(kExperts) == 8 * (4 + 4));
    CHECK(moe_sum_bytes(kExperts) == 2 * (8 + 1) * 2048);
    CHECK(moe_clone_bytes(2048) == 2 * 2 * 2048);
    CHECK(moe_shared_gate_bytes(2048) == 4 * 2 * 2048);
    CHECK(logits_to_fp32_bytes(248'320) == (2 + 4) * 248'320);
    CHECK(argmax_bytes(248'320) == 4 * 248'320);
}
