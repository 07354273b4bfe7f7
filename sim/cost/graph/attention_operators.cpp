// Full attention: grouped queries, gated or not (SGLang `qwen3_5.py`, `qwen3_next.py`, `nemotron_h.py`), and
// multi-head latent attention with absorbed projections in decode and expanded ones in prefill
// (`deepseek_v2.py`).
#include <algorithm>

#include "kernels/traffic_attention.hpp"
#include "kernels/traffic_blocks.hpp"
#include "kernels/traffic_elementwise.hpp"
#include "sim/cost/graph/list_builder.hpp"

namespace kvsim {

namespace {

// New tokens of a sequence that decodes (1) or verifies (T).
std::int64_t tokens_per_row(const StepShape& step) {
    if (step.decode.sequences == 0) return 1;
    const std::int64_t tokens = step.tokens() - step.prefill.new_tokens;
    return std::max<std::int64_t>(1, tokens / step.decode.sequences);
}

Operator& own(Operator& op, const AttentionTraffic& t) {
    op.flops += t.flops;
    return op.own(Owner::kKvRead, t.kv_read)
        .own(Owner::kKvWrite, t.kv_write)
        .own(Owner::kActivations, t.activations);
}

// Store of the new K and V, and attention: two launches. The T queries of a verifying sequence share its keys
// as heads of a group do.
void decode(ListBuilder& list, AttentionShape shape, const StepShape& step) {
    const std::int64_t rows = step.decode.sequences;
    if (rows == 0) return;
    const std::int64_t t = tokens_per_row(step);
    const AttentionTraffic store = kv_store_traffic(shape, rows * t);
    shape.q_heads *= static_cast<int>(t);
    const AttentionDecodeWork work{shape, rows, step.decode.context_sum + rows * t,
                                   step.decode.context_max + t, kColdL2};
    Operator& op = list.add(ListBuilder::make("attention.decode", work, 2));
    own(own(op, store), attention_decode_traffic(shape, rows, step.decode.context_sum + rows * (t - 1)));
}

void prefill(ListBuilder& list, const AttentionShape& computed, const AttentionShape& stored,
             const PrefillShape& p) {
    if (p.new_tokens == 0) return;
    const AttentionPrefillWork work{computed, p.sequences, p.new_tokens, p.cached_tokens, p.query_key_pairs};
    Operator& op = list.add(ListBuilder::make("attention.prefill", work, 2));
    AttentionTraffic t =
        attention_prefill_traffic(computed, p.new_tokens, p.cached_tokens, p.query_key_pairs);
    t.kv_read = (p.new_tokens + p.cached_tokens) * kv_token_bytes(stored);
    own(own(op, kv_store_traffic(stored, p.new_tokens)), t);
}

// Norms of q and k and RoPE in kernels of their own: copies of q and gate, two norms, RoPE.
void unfused_qk_norm_rope(ListBuilder& list, const AttentionShape& s, std::int64_t tokens,
                          std::int64_t norm_weights) {
    const std::int64_t queries = std::int64_t{s.q_heads} * s.head_dim;
    const std::int64_t keys = std::int64_t{s.kv_heads} * s.head_dim;
    list.element_wise("attention.copy_q", tokens, map_bytes(queries));
    list.element_wise("attention.copy_gate", tokens, map_bytes(queries));
    list.element_wise("attention.q_norm", tokens, map_bytes(queries)).own(Owner::kWeights, norm_weights / 2);
    list.element_wise("attention.k_norm", tokens, map_bytes(keys))
        .own(Owner::kWeights, norm_weights - norm_weights / 2);
    list.element_wise("attention.rope", tokens, rope_bytes(s));
}

void add(ListBuilder& list, const StepContext& context, const GqaMixer& mixer, const StepShape& step) {
    PartWeights w(weights(Attention(mixer), context.model.hidden), context.model);
    const AttentionShape shape{mixer.q_heads, mixer.kv_heads, mixer.head_dim};
    const std::int64_t queries = std::int64_t{shape.q_heads} * shape.head_dim;
    const std::int64_t tokens = step.tokens();
    list.gemm("attention.qkv_proj", tokens, w.take("qkv_proj"), w);
    const std::int64_t norm_weights = w.take_vector("qk_norm");
    if (mixer.qk_norm && context.engine.has(Fusion::kQkNormRope)) {
        list.element_wise("attention.qk_norm_rope", tokens, qk_norm_rope_bytes(shape))
            .own(Owner::kWeights, norm_weights);
    } else if (mixer.qk_norm) {
        unfused_qk_norm_rope(list, shape, tokens, norm_weights);
    } else if (mixer.rope) {
        list.element_wise("attention.rope", tokens, rope_bytes(shape));
    }
    decode(list, shape, step);
    prefill(list, shape, shape, step.prefill);
    if (mixer.output_gate && !context.engine.has(Fusion::kAttentionGate))
        list.element_wise("attention.sigmoid", tokens, map_bytes(queries));
    if (mixer.output_gate) list.element_wise("attention.gate", tokens, attention_gate_bytes(shape));
    list.gemm("attention.o_proj", tokens, w.take("o_proj"), w);
    w.finish();
}

void add(ListBuilder& list, const StepContext& context, const MlaMixer& mixer, const StepShape& step) {
    PartWeights w(weights(Attention(mixer), context.model.hidden), context.model);
    const std::int64_t tokens = step.tokens();
    if (mixer.q_latent > 0) {
        list.gemm("attention.q_a_proj", tokens, w.take("q_a_proj"), w);
        list.element_wise("attention.q_a_norm", tokens, map_bytes(mixer.q_latent))
            .own(Owner::kWeights, w.take_vector("q_a_norm"));
        list.gemm("attention.q_b_proj", tokens, w.take("q_b_proj"), w);
    } else {
        list.gemm("attention.q_proj", tokens, w.take("q_proj"), w);
    }
    list.gemm("attention.kv_a_proj", tokens, w.take("kv_a_proj"), w);
    list.element_wise("attention.kv_a_norm", tokens, map_bytes(mixer.kv_latent))
        .own(Owner::kWeights, w.take_vector("kv_a_norm"));
    if (mixer.rope)
        list.element_wise("attention.rope", tokens, map_bytes((mixer.q_heads + 1LL) * mixer.rope_dim));

    const WeightMatrix& kv_b = w.take("kv_b_proj");
    const std::int64_t bytes = w.bytes(kv_b);
    const std::int64_t up = bytes * mixer.nope_dim / (mixer.nope_dim + mixer.v_dim);  // of the keys
    // One latent per token for all heads: read once, 2 (latent + rope) bytes, as K and V of half that width
    // would be.
    const AttentionShape latent{mixer.q_heads, 1, (mixer.kv_latent + mixer.rope_dim) / 2};
    const std::int64_t heads = mixer.q_heads;
    const std::int64_t rows = tokens - step.prefill.new_tokens;
    if (rows > 0) {
        list.product("attention.absorb_k", rows, heads * mixer.kv_latent, mixer.nope_dim, up, w.format(kv_b));
        decode(list, latent, step);
        list.product("attention.absorb_v", rows, heads * mixer.v_dim, mixer.kv_latent, bytes - up,
                     w.format(kv_b));
    }
    if (step.prefill.new_tokens > 0) {
        list.product("attention.kv_b_proj", step.prefill.new_tokens + step.prefill.cached_tokens, kv_b.rows,
                     kv_b.cols, bytes, w.format(kv_b));
        // Products with keys of nope + rope and values of v: as heads of the mean width.
        const AttentionShape expanded{mixer.q_heads, mixer.q_heads,
                                      (mixer.nope_dim + mixer.rope_dim + mixer.v_dim) / 2};
        prefill(list, expanded, latent, step.prefill);
    }
    list.gemm("attention.o_proj", tokens, w.take("o_proj"), w);
    w.finish();
}

}  // namespace

void add_attention(ListBuilder& list, const StepContext& context, const Attention& mixer,
                   const StepShape& step) {
    std::visit([&](const auto& m) { add(list, context, m, step); }, mixer);
}

}  // namespace kvsim
