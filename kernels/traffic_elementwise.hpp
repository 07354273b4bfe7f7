// Bytes of element-wise operators: norms, activations, gates, routing, logits. bf16 activations; each
// function gives the bytes read plus written per token (row). Named beside each: the kernel of SGLang that it
// describes.
#pragma once

#include <cstdint>

#include "kernels/traffic_attention.hpp"
#include "kernels/traffic_moe.hpp"

namespace kvsim {

// ---- any layer ----

// x + residual, RMSNorm of the sum: reads both, writes both (`gemma_fused_add_rmsnorm`).
constexpr std::int64_t add_norm_bytes(std::int64_t hidden) {
    return 8 * hidden;
}

// silu(gate) * up of a [2 I] row (`silu_and_mul`).
constexpr std::int64_t silu_mul_bytes(std::int64_t intermediate) {
    return 6 * intermediate;
}

// ---- full-attention layer ----

// Norm of q and k, partial RoPE, gate taken apart: reads query, gate and key, writes the same
// (`fused_qk_gemma_rmsnorm_rope_gate`).
constexpr std::int64_t qk_norm_rope_bytes(const AttentionShape& s) {
    return 4LL * (2 * s.q_heads + s.kv_heads) * s.head_dim;
}

// attention * sigmoid(gate), in place (`fused_sigmoid_mul`).
constexpr std::int64_t attention_gate_bytes(const AttentionShape& s) {
    return 6LL * s.q_heads * s.head_dim;
}

// ---- mixture of experts ----

// Softmax, top-k, renormalise: router logits in, fp32 weights and int32 ids out (`moe_fused_gate`).
constexpr std::int64_t moe_top_k_bytes(const MoeShape& s) {
    return 2LL * s.experts + 8LL * s.top_k;
}

// Sorts the (token, expert) pairs by expert: int32 ids in, int32 positions out (`moe_align_block_size`).
constexpr std::int64_t moe_align_bytes(const MoeShape& s) {
    return 8LL * s.top_k;
}

// Sum of the k expert outputs of a token (`moe_sum_reduce`).
constexpr std::int64_t moe_sum_bytes(const MoeShape& s) {
    return 2LL * s.top_k * s.hidden + 2LL * s.hidden;
}

// Copy of the input for the shared expert (`clone`).
constexpr std::int64_t moe_clone_bytes(std::int64_t hidden) {
    return 4 * hidden;
}

// sigmoid(x . gate) * shared + routed (`fused_gate_sigmoid_mul_add`): reads x and both sums, writes one.
constexpr std::int64_t moe_shared_gate_bytes(std::int64_t hidden) {
    return 8 * hidden;
}

// ---- ends of the step ----

// Per row of logits: copy from bf16 to fp32, then argmax over fp32.
constexpr std::int64_t logits_to_fp32_bytes(std::int64_t vocab) {
    return 6 * vocab;
}
constexpr std::int64_t argmax_bytes(std::int64_t vocab) {
    return 4 * vocab;
}

// ---- verification, per verified token ----

// int64 ids of the draft and of the target's choice (`verify_tree_greedy`).
constexpr std::int64_t accept_bytes() {
    return 16;
}
// Probabilities of the drafts cleared (fp32), then read beside the target's (`tree_speculative_sampling`).
constexpr std::int64_t sampled_accept_bytes(std::int64_t vocab) {
    return 12 * vocab;
}

}  // namespace kvsim
