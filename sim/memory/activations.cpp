#include "sim/memory/activations.hpp"

#include <algorithm>
#include <variant>

namespace kvsim {

namespace {

constexpr std::int64_t kBf16Bytes = 2;
constexpr std::int64_t kFp32Bytes = 4;

// Values per token that are alive at once inside a sublayer: what one of its kernels reads, and what that
// writes.

// q, k, v and the gate of the projection, and q, k, v of the convolution.
std::int64_t live_values(const LinearMixer& m) {
    const std::int64_t keys = std::int64_t{m.k_heads} * m.k_dim;
    const std::int64_t values = std::int64_t{m.v_heads} * m.v_dim;
    return (2 * keys + 2 * values) + (2 * keys + values);
}
// The projection, and the attention's output.
std::int64_t live_values(const GqaMixer& m) {
    const std::int64_t queries = std::int64_t{m.q_heads} * m.head_dim;
    return (m.output_gate ? 2 : 1) * queries + 2LL * m.kv_heads * m.head_dim + queries;
}
std::int64_t live_values(const MlaMixer& m) {
    const std::int64_t queries = std::int64_t{m.q_heads} * (m.nope_dim + m.rope_dim);
    return queries + m.q_latent + m.kv_latent + m.rope_dim + std::int64_t{m.q_heads} * m.v_dim;
}
std::int64_t up_widths(Activation activation) {
    return activation == Activation::kSwiglu ? 2 : 1;
}
std::int64_t live_values(const DenseFfn& f) {
    return (up_widths(f.activation) + 1) * f.width;
}
// Routed and shared experts one after the other, the first kept.
std::int64_t live_values(const MoeFfn& f) {
    const std::int64_t widths = up_widths(f.activation) + 1;
    return widths * (std::int64_t{f.top_k} * f.expert_width + f.shared_width);
}

std::int64_t live_values(const LayerKind& kind) {
    const auto of = [](const auto& part) { return live_values(part); };
    const std::int64_t mixers = (kind.linear ? live_values(*kind.linear) : 0) +
                                (kind.attention ? std::visit(of, *kind.attention) : 0);
    return std::max(mixers, kind.ffn ? std::visit(of, *kind.ffn) : std::int64_t{0});
}

}  // namespace

Bytes activation_bytes(const ModelSpec& rank, std::int64_t tokens, std::int64_t logit_rows) {
    std::int64_t widest = 0;
    for (const LayerKind& kind : rank.kinds) widest = std::max(widest, live_values(kind));
    const Bytes layers(kBf16Bytes * tokens * (2LL * rank.hidden + widest));
    const Bytes logits((kBf16Bytes + kFp32Bytes) * logit_rows * rank.vocab);
    return std::max(layers, logits);
}

}  // namespace kvsim
