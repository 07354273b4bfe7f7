// Gated DeltaNet decode on the CPU in double: the truth for every test of the kernels.
//
// Source: Gated Delta Networks, arXiv 2412.06464, eq. 10; buffered form: KVBuffer, arXiv 2605.19049,
// section 3. The input contract is that of kernels/launch.hpp.
#pragma once

#include <span>
#include <vector>

#include "kernels/shapes.hpp"

namespace kvsim::reference {

// Weights of one layer's gates.
struct GdnWeights {
    std::span<const float> a_log;    // [v_heads]
    std::span<const float> dt_bias;  // [v_heads]
};

// One new token of one request, as the kernels read it (values of bf16 inputs).
struct GdnInput {
    std::span<const float> qkv;  // [2 k_heads k_dim + v_heads v_dim], packed q|k|v after the convolution
    std::span<const float> a;    // [v_heads]
    std::span<const float> b;    // [v_heads]
};

// The same token, ready for the recurrence.
struct GdnToken {
    std::vector<double> q;         // [k_heads, k_dim], unit norm times k_dim^-1/2
    std::vector<double> k;         // [k_heads, k_dim], unit norm
    std::vector<double> v;         // [v_heads, v_dim]
    std::vector<double> log_gate;  // [v_heads], -exp(A_log) softplus(a + dt_bias)
    std::vector<double> beta;      // [v_heads], sigmoid(b)
};
GdnToken prepare(const LinearShape& shape, const GdnWeights& weights, const GdnInput& input);

// Records of the tokens since the last flush, oldest first.
struct GdnRing {
    int fill = 0;
    std::vector<double> k;         // [fill, k_heads, k_dim]
    std::vector<double> u;         // [fill, v_heads, v_dim]
    std::vector<double> log_gate;  // [fill, v_heads], summed since the last flush
};

// One token in recurrent form. state: [v_heads, v_dim, k_dim], updated in place; out: [v_heads, v_dim].
void recurrent_step(const LinearShape& shape, const GdnToken& token, std::span<double> state,
                    std::span<double> out);

// One token in buffered form: appends its record to the ring; a flush folds all records into the state and
// empties it.
void buffered_step(const LinearShape& shape, const GdnToken& token, bool flush, std::span<double> state,
                   GdnRing& ring, std::span<double> out);

// ||value - truth|| / ||truth||; infinity when value holds a NaN.
double relative_error(std::span<const double> value, std::span<const double> truth);

}  // namespace kvsim::reference
