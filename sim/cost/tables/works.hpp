// What launches ask of a GPU, for the operators whose laws are fitted to published tables. Plain values;
// heads and widths are those of one rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/shapes.hpp"
#include "kernels/traffic_attention.hpp"
#include "kernels/traffic_moe.hpp"

namespace kvsim {

// Storage and arithmetic of a matrix product's operands. kFp8Block: fp8 with a scale per 128 x 128 weights.
enum class MatrixFormat : std::uint8_t { kBf16, kFp8, kFp8Block, kFp4 };
inline constexpr std::array<std::string_view, 4> kMatrixFormatNames{"bf16", "fp8", "fp8_block", "fp4"};

constexpr double bytes_per_element(MatrixFormat f) {
    return f == MatrixFormat::kBf16 ? 2.0 : f == MatrixFormat::kFp4 ? 0.5 : 1.0;
}

// How many sets of operands successive launches rotate over. 0: none of them is in the L2, as inside a step
// that streams a whole model through it. Benchmarks rotate over few: what fits stays in the L2 between
// launches.
using Rotation = std::int64_t;
inline constexpr Rotation kColdL2 = 0;

// Activations [m, k] times weights [n, k].
struct GemmWork {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    MatrixFormat format = MatrixFormat::kBf16;
    Rotation rotation = kColdL2;

    bool operator==(const GemmWork&) const = default;
};

// One call of the fused experts: routed rows sorted by expert, two grouped products with the activation
// between, sum over top_k. `shape.experts` counts those of the whole layer, on all ranks;
// `shape.intermediate` is the width per rank (tensor parallelism divides it).
struct MoeWork {
    MoeShape shape;
    std::int64_t tokens = 0;
    double distinct_experts = 0.0;  // touched on this rank, expected
    double rows = 0.0;              // pairs of a token and an expert of this rank; tokens x top_k without EP
    bool gated = true;              // SwiGLU: three matrices per expert; relu2 (Nemotron): two
    bool even = false;              // all touched experts have the same rows, as benchmarks arrange it
    MatrixFormat format = MatrixFormat::kBf16;
    Rotation rotation = kColdL2;

    bool operator==(const MoeWork&) const = default;
};

// One query per sequence against its cache, the store of the new K and V included.
struct AttentionDecodeWork {
    AttentionShape shape;
    std::int64_t sequences = 0;
    std::int64_t context_sum = 0;  // tokens read, summed over sequences, the new ones included
    std::int64_t context_max = 0;  // of one sequence
    Rotation rotation = kColdL2;

    bool operator==(const AttentionDecodeWork&) const = default;
};
// Without that store.
constexpr AttentionTraffic traffic_of(const AttentionDecodeWork& w) {
    return attention_decode_traffic(w.shape, w.sequences, w.context_sum - w.sequences);
}

// Causal attention of new tokens after cached ones, the store of their K and V included.
struct AttentionPrefillWork {
    AttentionShape shape;
    std::int64_t sequences = 0;
    std::int64_t new_tokens = 0;       // summed over sequences
    std::int64_t cached_tokens = 0;    // summed over sequences
    std::int64_t query_key_pairs = 0;  // causal: sum of n (p + (n + 1)/2)

    bool operator==(const AttentionPrefillWork&) const = default;
};
constexpr AttentionTraffic traffic_of(const AttentionPrefillWork& w) {
    return attention_prefill_traffic(w.shape, w.new_tokens, w.cached_tokens, w.query_key_pairs);
}

// Gates, recurrence and output of one token per sequence, with a published kernel that reads and writes the
// state.
struct PackedDecodeWork {
    LinearShape shape;
    std::int64_t sequences = 0;
    Rotation rotation = kColdL2;
};

// One launch of a form that no table of the GPU has: its bytes, moved as the published kernel moves its own.
struct LinearBytesWork {
    LinearShape shape;
    Form form = Form::kBuffered;
    LinearWork work;
    std::int64_t buffer_length = 0;  // records of a ring, which all stay between launches
    Rotation rotation = kColdL2;
};

// The chunk kernels of a delta-rule layer over a batch of prompts, l2norm and state gather included.
struct LinearPrefillWork {
    LinearShape shape;
    std::int64_t sequences = 0;
    std::int64_t new_tokens = 0;  // summed over sequences
    std::int64_t longest = 0;     // of one sequence

    bool operator==(const LinearPrefillWork&) const = default;
};

// Causal depthwise convolution with SiLU: `tokens` equal to `sequences` is the decode step
// (causal_conv1d_update).
struct ConvWork {
    std::int64_t channels = 0;
    int kernel = 4;
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;
    Rotation rotation = kColdL2;

    bool operator==(const ConvWork&) const = default;
};
// bf16: a column in and one out per token, and the window of kernel - 1 columns read and written per
// sequence.
constexpr std::int64_t conv_bytes(const ConvWork& w) {
    return w.channels * (4 * w.tokens + 4 * (w.kernel - 1) * w.sequences);
}

}  // namespace kvsim
