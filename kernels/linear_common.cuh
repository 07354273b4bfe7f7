// What all kernels of a gated-delta-rule layer share: dimensions, gates, halves of words.
#pragma once

#include <cuda_bf16.h>

namespace kvsim {

constexpr int kDim = 128;  // k_dim and v_dim
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kNormEpsilon = 1e-6f;
constexpr float kQueryScale = 0.08838834764831845f;  // kDim^-1/2
constexpr float kLogGateFloor = -100.0f;  // e^-100 is zero in fp32, and sums of gates stay finite

__device__ __forceinline__ float low_half(unsigned word) {
    return __uint_as_float(word << 16);
}
__device__ __forceinline__ float high_half(unsigned word) {
    return __uint_as_float(word & 0xffff0000u);
}

__device__ __forceinline__ float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}
// rate: -exp(A_log). A NaN stays one.
__device__ __forceinline__ float log_gate_at_rate(float rate, float x) {
    const float gate = rate * softplus(x);
    return gate < kLogGateFloor ? kLogGateFloor : gate;
}

}  // namespace kvsim
