// Compares what a linear-attention kernel did to one row with the CPU reference. Pure host code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/shapes.hpp"

namespace kvsim::calibrate {

struct Verification {
    double max_error = 0.0;  // largest relative L2 error of an output
    std::string failure;     // the first thing that was wrong; empty when all was right

    bool passed() const { return failure.empty(); }
    void fail(std::string why) {
        if (failure.empty()) failure = std::move(why);
    }
};

// One row with all that a kernel may read or write for it, bf16 widened to float; layouts of
// kernels/launch.hpp.
struct RowSnapshot {
    int row = 0;
    int fill = 0;       // buffered form: records before the launch
    bool flush = true;  // the recurrent form writes its state always
    std::vector<float> qkv, a, b;
    std::vector<float> out;        // [v_heads, v_dim]
    std::vector<float> state;      // [v_heads, v_dim, k_dim]
    std::vector<float> ring_k;     // [k_heads, C, k_dim]; empty in the recurrent form, as all that follow
    std::vector<float> ring_u;     // [v_heads, C, v_dim]
    std::vector<float> ring_gate;  // [v_heads, C]
};

struct RowContext {
    LinearShape shape;
    int ring_capacity = 0;           // 0: recurrent form
    std::span<const float> a_log;    // [v_heads]
    std::span<const float> dt_bias;  // [v_heads]
};

// Relative L2 errors that pass. Rounding to bf16 (8 significant bits) alone gives about 1.7e-3; fp32 results
// differ from double by the rounding of sums of some hundred terms.
inline constexpr double kBf16Tolerance = 4e-3;
inline constexpr double kFp32Tolerance = 1e-4;

// Checks the output, the new record, and the state: equal to the reference's when the row flushes, untouched
// bit by bit when it does not.
Verification check_row(const RowContext& context, const RowSnapshot& before, const RowSnapshot& after);

// min(batch, count) distinct rows, count >= 4: the first, the last, up to two of those that flush, others
// spread evenly. flush: [batch], or empty where rows do not differ.
std::vector<int> sampled_rows(int batch, std::span<const std::uint8_t> flush, int count);

}  // namespace kvsim::calibrate
