// Bytes and FLOPs of the operators around the decode kernel of a linear-attention layer: convolution, copies,
// gated norm, chunkwise prefill. Functions that return a plain number give bytes read plus written per token.
// Named beside each: the kernel of SGLang that it describes.
#pragma once

#include <cstdint>

#include "kernels/shapes.hpp"
#include "kernels/traffic_linear.hpp"

namespace kvsim {

// C: channels of the convolution, q, k and v side by side.
constexpr std::int64_t conv_channels(const LinearShape& s) {
    return 2LL * s.k_heads * s.k_dim + std::int64_t{s.v_heads} * s.v_dim;
}

// Copies the fused projection into q|k|v, z, b and a (`fused_qkvzba_split_reshape_cat_contiguous`).
constexpr std::int64_t split_projection_bytes(const LinearShape& s) {
    return 4 * conv_channels(s) + 4LL * s.v_heads * s.v_dim + 8LL * s.v_heads;
}

// Causal depthwise convolution with SiLU over tokens (`causal_conv1d_update`, `causal_conv1d_fn`): the window
// of kernel - 1 columns is read and written once per sequence.
struct ConvTraffic {
    std::int64_t weights = 0;
    std::int64_t window_read = 0;
    std::int64_t window_write = 0;
    std::int64_t activations = 0;
    std::int64_t flops = 0;

    constexpr std::int64_t total() const { return weights + window_read + window_write + activations; }
};
constexpr ConvTraffic conv_traffic(const LinearShape& s, int kernel, std::int64_t sequences,
                                   std::int64_t tokens) {
    const std::int64_t channels = conv_channels(s);
    const std::int64_t window = sequences * channels * (kernel - 1) * 2;
    return {2 * channels * kernel, window, window, 4 * channels * tokens, 2 * channels * kernel * tokens};
}

// RMSNorm(o) * silu(z) per value head, with its fp32 rstd stored (`layernorm_gated`).
constexpr std::int64_t gated_norm_bytes(const LinearShape& s) {
    return 6LL * s.v_heads * s.v_dim + 4LL * s.v_heads;
}

// Before a chunkwise prefill: q, k, v to tensors of their own (`fused_qkv_split_gdn_prefill`), gates g and
// beta in fp32 from bf16 (`fused_gdn_gating`).
constexpr std::int64_t prefill_split_gates_bytes(const LinearShape& s) {
    return 4 * conv_channels(s) + (2 + 4) * raw_gate_values(s);
}

// Chunkwise prefill of a delta-rule layer, chunks of c = 64 tokens (Gated DeltaNet, arXiv 2412.06464,
// section 3.3).
struct ChunkPrefillTraffic {
    std::int64_t state_read = 0;
    std::int64_t state_write = 0;
    std::int64_t activations = 0;
    std::int64_t flops = 0;

    constexpr std::int64_t total() const { return state_read + state_write + activations; }
};
inline constexpr std::int64_t kPrefillChunk = 64;
constexpr ChunkPrefillTraffic chunk_prefill_traffic(const LinearShape& s, std::int64_t sequences,
                                                    std::int64_t tokens) {
    const std::int64_t k = s.k_dim;
    const std::int64_t v = s.v_dim;
    const std::int64_t state = sequences * state_bytes(s);
    // q, k, v in bf16 and g, beta in fp32 in; o out; q and k are also read and written by their l2norm.
    const std::int64_t token_bytes =
        2 * conv_channels(s) + 4 * raw_gate_values(s) + 2LL * s.v_heads * v + 8LL * s.k_heads * k;
    // k k^T, w, q k^T: 2cK each; u, A v: 2cV each; w h, k^T v, q h: 2KV each.
    const std::int64_t head_flops = 6 * k * v + 6 * kPrefillChunk * k + 4 * kPrefillChunk * v;
    return {state, state, tokens * token_bytes, tokens * s.v_heads * head_flops};
}

}  // namespace kvsim
