// Bytes of the operators that blocks other than Qwen's are made of: Nemotron (Mamba-2, latent experts),
// Kimi-Linear (KDA, MLA), lightning attention, and of unfused forms of Qwen's. bf16 activations; a function
// gives the bytes read plus written per token (row). Named beside each: the kernel of SGLang or vLLM that it
// describes.
#pragma once

#include <cstdint>

#include "kernels/shapes.hpp"
#include "kernels/traffic_attention.hpp"
#include "kernels/traffic_linear.hpp"

namespace kvsim {

// y = x + z of `width` values (`add`).
constexpr std::int64_t add_bytes(std::int64_t width) {
    return 6 * width;
}

// A value copied, scaled or passed through a function, in place or not.
constexpr std::int64_t map_bytes(std::int64_t width) {
    return 4 * width;
}

// relu(x)^2 (`relu2`).
constexpr std::int64_t relu2_bytes(std::int64_t intermediate) {
    return map_bytes(intermediate);
}

// ---- linear layers ----

// Output times activated gate with the norm of either order (`Mixer2RMSNormGated`, `FusedRMSNormGated`), or
// without one.
constexpr std::int64_t gate_output_bytes(const LinearShape& s) {
    return 6LL * s.v_heads * s.v_dim;
}

// Chunkwise prefill of a Mamba-2 layer (`ssd_combined.py`), chunks of 128 tokens: chunk states of fp32 are
// written, read and written again as they are passed on, and read; C B^T is written and read in bf16.
struct SsdPrefillTraffic {
    std::int64_t state_read = 0;
    std::int64_t state_write = 0;
    std::int64_t activations = 0;
    std::int64_t flops = 0;
};
inline constexpr std::int64_t kSsdChunk = 128;
constexpr SsdPrefillTraffic ssd_prefill_traffic(const LinearShape& s, std::int64_t sequences,
                                                std::int64_t tokens) {
    const std::int64_t n = s.k_dim;
    const std::int64_t p = s.v_dim;
    const std::int64_t state = sequences * s.v_heads * n * p * bytes_per_element(s.state);
    const std::int64_t values = std::int64_t{s.v_heads} * p;
    // x, B, C in, dt in fp32, y out; four passes over the states; C B^T of chunk x groups, out and in.
    const std::int64_t token_bytes = 2 * (values + 2LL * s.k_heads * n) + 4 * gate_values(s) + 2 * values +
                                     4 * 4 * values * n / kSsdChunk + 4 * kSsdChunk * s.k_heads;
    // States and their use: 4 N P. Inside a chunk, all of Q x Q: 2 Q P per head, 2 Q N per group.
    const std::int64_t flops = 4 * n * values + 2 * kSsdChunk * values + 2 * kSsdChunk * n * s.k_heads;
    return {state, state, tokens * token_bytes, tokens * flops};
}

// ---- full attention ----

// Queries and keys rotated in place.
constexpr std::int64_t rope_bytes(const AttentionShape& s) {
    return 4LL * (s.q_heads + s.kv_heads) * s.head_dim;
}

// ---- sampling, per row of fp32 logits ----

// Temperature, softmax and the copy back (`sampler.py`): three kernels that each read and write all of them.
constexpr std::int64_t softmax_chain_bytes(std::int64_t vocab) {
    return 24 * vocab;
}
// One pass of top-k and top-p (FlashInfer `top_k_top_p_sampling_from_probs`).
constexpr std::int64_t sample_pass_bytes(std::int64_t vocab) {
    return 4 * vocab;
}

}  // namespace kvsim
