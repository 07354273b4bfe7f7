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
void append_decode(AttentionShape shape, const StepShape& step, OperatorList& list) {
    const std::int64_t rows = step.decode.sequences;
    if (rows == 0) return;
    const std::int64_t t = tokens_per_row(step);
    const AttentionTraffic store = kv_store_traffic(shape, rows * t);
    shape.q_heads *= static_cast<int>(t);
    list.push_back(make_operator("attention.decode", AttentionDecodeWork{shape, rows, 0, 0, kColdL2}, 2));
    own(list.back(), store).own(Owner::kActivations, attention_decode_traffic(shape, rows, 0).activations);
    set_contexts(list.back(), step.decode, t);
}

void append_prefill(const AttentionPart& part, const PrefillShape& p, OperatorList& list) {
    const AttentionPrefillWork work{part.prefill, p.sequences, p.new_tokens, p.cached_tokens,
                                    p.query_key_pairs};
    list.push_back(make_operator("attention.prefill", work, 2));
    AttentionTraffic t = traffic_of(work);
    t.kv_read = (p.new_tokens + p.cached_tokens) * kv_token_bytes(part.decode);
    own(own(list.back(), kv_store_traffic(part.decode, p.new_tokens)), t);
}

void add_kernels(ListBuilder& list, const AttentionPart& part, const StepShape& step) {
    OperatorList kernels;
    append_attention(part, step, kernels);
    list.add_all(std::move(kernels), Driver::kAttention);
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
    add_kernels(list, attention_part(mixer, w), step);
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

    add_kernels(list, attention_part(mixer, w), step);
    list.gemm("attention.o_proj", tokens, w.take("o_proj"), w);
    w.finish();
}

}  // namespace

AttentionPart attention_part(const GqaMixer& mixer, PartWeights&) {
    const AttentionShape shape{mixer.q_heads, mixer.kv_heads, mixer.head_dim};
    return {shape, shape, {}};
}

AttentionPart attention_part(const MlaMixer& mixer, PartWeights& weights) {
    const Product kv_b = weights.product(weights.take("kv_b_proj"));
    const std::int64_t keys = kv_b.weight_bytes * mixer.nope_dim / (mixer.nope_dim + mixer.v_dim);
    const std::int64_t heads = mixer.q_heads;
    AttentionPart part;
    part.latent = {{heads * mixer.kv_latent, mixer.nope_dim, keys, kv_b.format, heads},
                   {heads * mixer.v_dim, mixer.kv_latent, kv_b.weight_bytes - keys, kv_b.format, heads},
                   kv_b};
    part.decode = {mixer.q_heads, 1, (mixer.kv_latent + mixer.rope_dim) / 2, mixer.kv_latent};
    // Products with keys of nope + rope and values of v: as heads of the mean width.
    part.prefill = {mixer.q_heads, mixer.q_heads, (mixer.nope_dim + mixer.rope_dim + mixer.v_dim) / 2};
    return part;
}

void set_contexts(Operator& op, const DecodeAttentionShape& contexts, std::int64_t tokens_per_row) {
    auto& work = std::get<AttentionDecodeWork>(op.pricing);
    work.context_sum = contexts.context_sum + contexts.sequences * tokens_per_row;
    work.context_max = contexts.context_max + tokens_per_row;
    const AttentionTraffic t = traffic_of(work);
    op.flops = t.flops;
    op.bytes[static_cast<std::size_t>(Owner::kKvRead)] = Bytes(t.kv_read);
}

void append_attention(const AttentionPart& part, const StepShape& step, OperatorList& list) {
    const PrefillShape& p = step.prefill;
    const std::int64_t rows = step.tokens() - p.new_tokens;
    const auto& latent = part.latent;
    if (rows > 0) {
        if (latent) list.push_back(product_operator("attention.absorb_k", rows, latent->absorb_k));
        append_decode(part.decode, step, list);
        if (latent) list.push_back(product_operator("attention.absorb_v", rows, latent->absorb_v));
    }
    if (p.new_tokens > 0) {
        if (latent)
            list.push_back(
                product_operator("attention.kv_b_proj", p.new_tokens + p.cached_tokens, latent->expand));
        append_prefill(part, p, list);
    }
}

void add_attention(ListBuilder& list, const StepContext& context, const Attention& mixer,
                   const StepShape& step) {
    std::visit([&](const auto& m) { add(list, context, m, step); }, mixer);
}

}  // namespace kvsim
