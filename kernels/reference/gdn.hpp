// Inputs of a Gated DeltaNet layer made ready for the recurrence, in double.
//
// Source: Gated Delta Networks, arXiv 2412.06464, eq. 10. The input contract is that of kernels/launch.hpp.
#pragma once

#include <span>

#include "kernels/reference/linear.hpp"
#include "kernels/shapes.hpp"

namespace kvsim::reference {

// Weights of one layer's gates. a_log at most 80: exp(a_log) is finite in fp32 too.
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

// q / |q| k_dim^-1/2 and k / |k| with |x| = sqrt(sum x^2 + 1e-6); log gate -exp(A_log) softplus(a + dt_bias),
// not below kLogGateFloor; beta sigmoid(b). Infinite a and b are limits, not NaN; a NaN stays one.
LinearToken prepare(const LinearShape& shape, const GdnWeights& weights, const GdnInput& input);

}  // namespace kvsim::reference
