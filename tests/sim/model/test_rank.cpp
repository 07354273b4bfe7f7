#include "sim/model/rank.hpp"

#include "sim/base/error.hpp"
#include "sim/model/parameters.hpp"
#include "sim/model/request_bytes.hpp"
#include "tests/sim/model/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/models.hpp"

using namespace kvsim;
using kvsim::testing::committed;

namespace {

std::string refusal(const ModelSpec& model, const Parallelism& p) {
    try {
        rank_model(model, p);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

const GqaMixer& attention_of(const ModelSpec& model, char letter) {
    return std::get<GqaMixer>(*model.kind(letter).attention);
}
const MoeFfn& moe_of(const ModelSpec& model, char letter) {
    return std::get<MoeFfn>(*model.kind(letter).ffn);
}

std::vector<WeightMatrix> all_matrices(const ModelSpec& model) {
    std::vector<WeightMatrix> list;
    const auto add = [&](const std::vector<WeightMatrix>& part) {
        list.insert(list.end(), part.begin(), part.end());
    };
    for (const LayerKind& kind : model.kinds) {
        if (kind.linear) add(weights(*kind.linear, model.hidden));
        if (kind.attention) add(weights(*kind.attention, model.hidden));
        if (kind.ffn) add(weights(*kind.ffn, model.hidden));
    }
    return list;
}

// Held whole by every rank of a tensor-parallel group, as in SGLang and vLLM.
bool replicated(std::string_view name) {
    for (const char* whole : {"router", "router_bias", "shared_gate", "latent_down", "latent_up", "f_a_proj",
                              "g_a_proj", "kv_a_proj", "kv_a_norm", "qk_norm"}) {
        if (name == whole) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("one rank holds the model", "[rank]") {
    for (const ModelSpec& m : testing::all_committed()) CHECK(rank_model(m, {}) == m);
}

TEST_CASE("the ranks' matrices make up the model's", "[rank]") {
    int checked = 0;
    for (const ModelSpec& m : testing::all_committed()) {
        for (const int tp : {2, 4, 8}) {
            if (!refusal(m, {tp}).empty()) continue;
            INFO(m.name << " over " << tp);
            const ModelSpec rank = rank_model(m, {tp});
            const std::vector<WeightMatrix> whole = all_matrices(m), part = all_matrices(rank);
            REQUIRE(whole.size() == part.size());
            for (std::size_t i = 0; i < whole.size(); ++i) {
                INFO(whole[i].name);
                const std::int64_t all = whole[i].rows * whole[i].cols * whole[i].copies;
                const std::int64_t one = part[i].rows * part[i].cols * part[i].copies;
                // Fewer KV heads than ranks, one group of Mamba-2, and norms of one head: between the two.
                CHECK(one * tp >= all);
                CHECK(one <= all);
                if (replicated(whole[i].name)) CHECK(one == all);
                if (whole[i].group == WeightGroup::kExperts || whole[i].name == "out_proj" ||
                    whole[i].name == "o_proj" || whole[i].name == "down")
                    CHECK(one * tp == all);
            }
            CHECK(state_bytes_per_request(rank, StateFormat::kFp32).value() * tp ==
                  state_bytes_per_request(m, StateFormat::kFp32).value());
            CHECK(std::int64_t{rank.vocab} * tp == m.vocab);  // all vocabularies are multiples of 64
            ++checked;
        }
    }
    CHECK(checked >= 40);  // most models can be cut 2, 4 and 8 ways
}

TEST_CASE("Qwen3-Next over four GPUs, by hand", "[rank]") {
    // 16 key, 32 value and 16 query heads: a quarter each; two KV heads: one on every rank.
    const ModelSpec m = committed("qwen3-next-80b-a3b");
    const ModelSpec rank = rank_model(m, {.tp = 4});
    CHECK(*rank.kind('L').linear == LinearMixer{"linear", Family::kGdn, 4, 8, 128, 128, 4});
    CHECK(attention_of(rank, 'F') == GqaMixer{"attention", 4, 1, 256, true, true, true});
    CHECK(moe_of(rank, 'L').experts_held() == 512);
    CHECK(moe_of(rank, 'L').expert_width == 128);
    CHECK(moe_of(rank, 'L').shared_width == 128);
    CHECK(rank.vocab == 37'984);
    CHECK(rank.hidden == 2048);
    CHECK(rank.pattern == m.pattern);
    // 128 requests hold 64 MiB of state per layer and rank.
    CHECK(state_bytes_per_request(rank, StateFormat::kFp32) == Bytes(36LL * (64 << 20) / 128));
    CHECK(kv_bytes_per_token(rank) == Bytes(12 * 2 * 1 * 256 * 2));
    CHECK(kv_bytes_per_token(rank_model(m, {.tp = 8})) == kv_bytes_per_token(rank));  // stops shrinking
}

TEST_CASE("experts over ranks, mixers in data parallel", "[rank]") {
    const ModelSpec m = committed("qwen3-next-80b-a3b");
    const ModelSpec expert_parallel = rank_model(m, {.tp = 8, .ep = 8});
    CHECK(moe_of(expert_parallel, 'L').experts_held() == 64);
    CHECK(moe_of(expert_parallel, 'L').experts == 512);  // the router still chooses among all
    CHECK(moe_of(expert_parallel, 'L').expert_width == 512);
    const ModelSpec both = rank_model(m, {.tp = 8, .ep = 2});
    CHECK(moe_of(both, 'L').experts_held() == 256);
    CHECK(moe_of(both, 'L').expert_width == 128);
    // Either way a rank holds an eighth of the experts' weights.
    for (const ModelSpec& rank : {expert_parallel, both}) {
        std::int64_t held = 0;
        for (const WeightMatrix& w : weights(*rank.kind('L').ffn, rank.hidden))
            if (w.group == WeightGroup::kExperts) held += w.copies * w.rows * w.cols;
        CHECK(held == 3LL * 512 * 2048 * 512 / 8);
    }
    const ModelSpec attention = rank_model(m, {.tp = 8, .ep = 8, .attention_dp = 8});
    CHECK(*attention.kind('L').linear == *m.kind('L').linear);
    CHECK(attention_of(attention, 'F') == attention_of(m, 'F'));
    CHECK(moe_of(attention, 'L').experts_held() == 64);
    CHECK(attention_of(rank_model(m, {.tp = 8, .attention_dp = 4}), 'F').q_heads == 8);
}

TEST_CASE("with an all-to-all every rank holds the shared experts whole", "[rank]") {
    const ModelSpec m = committed("qwen3-next-80b-a3b");
    const Parallelism sent{.tp = 8, .ep = 8, .attention_dp = 8, .experts = ExpertExchange::kAllToAll};
    CHECK(moe_of(rank_model(m, sent), 'L').shared_width == 512);
    CHECK(moe_of(rank_model(m, sent), 'L').experts_held() == 64);
    CHECK(moe_of(rank_model(m, {.tp = 8, .ep = 8}), 'L').shared_width == 64);
    // On one rank there is nobody to send to.
    CHECK(rank_model(m, {.experts = ExpertExchange::kAllToAll}).kinds == m.kinds);
    CHECK(refusal(m, {.tp = 8, .ep = 2, .experts = ExpertExchange::kAllToAll}) ==
          "model qwen3-next-80b-a3b: ep: expected tp (8) with all_to_all experts, got 2");
}

TEST_CASE("what every rank holds whole", "[rank]") {
    const ModelSpec kimi = rank_model(committed("kimi-linear-48b-a3b"), {.tp = 4});
    const auto& mla = std::get<MlaMixer>(*kimi.kind('A').attention);
    CHECK(mla.q_heads == 8);
    CHECK(mla.kv_latent == 512);
    CHECK(kv_bytes_per_token(kimi) == kv_bytes_per_token(committed("kimi-linear-48b-a3b")));
    // The single group of Granite's Mamba-2 layers; eight groups are divided.
    CHECK(rank_model(committed("granite-4.0-h-small"), {.tp = 8}).kind('M').linear->k_heads == 1);
    CHECK(rank_model(committed("nemotron-3-super-120b-a12b"), {.tp = 8}).kind('M').linear->k_heads == 1);
    CHECK(rank_model(committed("nemotron-3-super-120b-a12b"), {.tp = 2}).kind('M').linear->k_heads == 4);
    CHECK(moe_of(rank_model(committed("nemotron-3-super-120b-a12b"), {.tp = 8}), 'E').latent == 1024);
}

TEST_CASE("a vocabulary is padded before it is cut", "[rank]") {
    ModelSpec m = testing::qwen35_4b();
    m.vocab = 100;  // padded to 128
    CHECK(rank_model(m, {.tp = 2}).vocab == 64);
    CHECK(rank_model(m, {}).vocab == 100);
}

TEST_CASE("sizes that cannot be divided are all named", "[rank]") {
    ModelSpec m = testing::qwen35_4b();
    m.vocab = 64;
    CHECK(refusal(m, {.tp = 3}) ==
          "model qwen3.5-4b: linear: 32 value heads cannot be divided over 3 ranks\n"
          "model qwen3.5-4b: linear: 16 key heads or groups cannot be divided over 3 ranks\n"
          "model qwen3.5-4b: attention: 16 query heads cannot be divided over 3 ranks\n"
          "model qwen3.5-4b: attention: 4 KV heads cannot be divided over 3 ranks\n"
          "model qwen3.5-4b: vocab: 64 rows of the padded vocabulary cannot be divided over 3 ranks");
    CHECK(refusal(testing::qwen35_35b_a3b(), {.tp = 4, .ep = 3}) ==
          "model qwen3.5-35b-a3b: ep: expected a divisor of tp (4), got 3");
    CHECK(refusal(testing::qwen35_35b_a3b(), {.tp = 0}) ==
          "model qwen3.5-35b-a3b: tp: expected at least 1, got 0");
    CHECK(refusal(testing::qwen35_35b_a3b(), {.tp = 4, .attention_dp = 8}) ==
          "model qwen3.5-35b-a3b: attention_dp: expected a divisor of tp (4), got 8");
    // Three KV heads on eight ranks: no even sharing.
    ModelSpec odd = testing::qwen35_4b();
    std::get<GqaMixer>(*odd.kinds[1].attention) = {"attention", 24, 3, 256, true, true, true};
    CHECK(refusal(odd, {.tp = 8}) ==
          "model qwen3.5-4b: attention: 3 KV heads cannot be shared evenly by 8 ranks");
}
