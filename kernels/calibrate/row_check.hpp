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

// One row with all that a kernel may read or write for it, bf16 widened to float. Layouts are those of
// kernels/launch.hpp, but the elements of recorded keys and u stand in their plain order. T tokens: one for
// decode, as many as `a` has rows for verify.
struct RowSnapshot {
    int row = 0;
    bool padding = false;          // a row without a request: zeros come out, nothing else changes
    int start = 0;                 // buffered forms: ring index of the oldest record before the launch
    int fill = 0;                  // buffered forms: records before the launch
    bool flush = true;             // the recurrent form writes its state always
    std::vector<float> qkv, a, b;  // [T, ...]
    std::vector<float> out;        // [T, v_heads, v_dim]
    std::vector<float> state;      // [v_heads, v_dim, k_dim]; split: the whole words
    std::vector<float> states;     // [T, v_heads, v_dim, k_dim]; stored-states verify only
    std::vector<float> ring_k;     // [k_heads, C, k_dim]; empty without a ring, as all that follow
    std::vector<float> ring_u;     // [v_heads, C, v_dim]
    std::vector<float> ring_gate;  // [v_heads, C]
};

struct RowContext {
    LinearShape shape;
    int ring_capacity = 0;           // 0: a form without a ring
    std::span<const float> a_log;    // [v_heads]
    std::span<const float> dt_bias;  // [v_heads]
    Form form = Form::kRecurrent;    // any but kDirect
};

// Relative L2 errors that pass. Rounding to bf16 (8 significant bits) alone gives about 1.7e-3; fp32 results
// differ from double by the rounding of sums of some hundred terms.
inline constexpr double kBf16Tolerance = 4e-3;
inline constexpr double kFp32Tolerance = 1e-4;

// Checks the outputs, the new records (keys to the bit) and what is written of the state, and that the rest
// of the ring, and the state of a row that does not write it, are untouched to the bit.
Verification check_row(const RowContext& context, const RowSnapshot& before, const RowSnapshot& after);

// What a launch does to a slot that none of its rows names: nothing, to the bit.
Verification check_bystander(const RowSnapshot& before, const RowSnapshot& after);

// min(batch, count) distinct rows, count >= 4: the first, the last, up to two of those that flush, others
// spread evenly. flush: [batch], or empty where rows do not differ.
std::vector<int> sampled_rows(int batch, std::span<const std::uint8_t> flush, int count);

}  // namespace kvsim::calibrate
