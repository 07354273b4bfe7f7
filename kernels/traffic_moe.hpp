// Bytes and FLOPs of the routed experts of a mixture-of-experts layer: two grouped bf16 products over the
// experts that a batch touches, SwiGLU between them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/traffic_gemm.hpp"

namespace kvsim {

struct MoeShape {
    int hidden = 0;
    int experts = 0;       // E
    int top_k = 0;         // k
    int intermediate = 0;  // width of one expert

    friend constexpr bool operator==(const MoeShape& a, const MoeShape& b) {
        return a.hidden == b.hidden && a.experts == b.experts && a.top_k == b.top_k &&
               a.intermediate == b.intermediate;
    }
};

// Experts that M tokens touch when each draws k distinct ones of E at random: E (1 - (1 - k/E)^M). Exactly k
// at M = 1.
inline double expected_distinct_experts(const MoeShape& s, std::int64_t tokens) {
    const double experts = s.experts;
    return experts * (1.0 - std::pow(1.0 - s.top_k / experts, static_cast<double>(tokens)));
}

// Grouped product 1: gate and up, [m_e, 2 I] per expert. Token rows are gathered, each read once from DRAM.
inline GemmTraffic moe_gate_up_traffic(const MoeShape& s, std::int64_t tokens, double distinct_experts) {
    const std::int64_t width = 2LL * s.intermediate;
    const std::int64_t rows = tokens * s.top_k;
    const double weights = distinct_experts * static_cast<double>(2 * width * s.hidden);
    return {std::llround(weights), 2 * (tokens * s.hidden + rows * width), 2 * rows * width * s.hidden};
}

// Grouped product 2: down, [m_e, hidden] per expert, k rows per token.
inline GemmTraffic moe_down_traffic(const MoeShape& s, std::int64_t tokens, double distinct_experts) {
    const std::int64_t rows = tokens * s.top_k;
    const double weights = distinct_experts * static_cast<double>(2LL * s.hidden * s.intermediate);
    return {std::llround(weights), 2 * rows * (s.intermediate + s.hidden),
            2 * rows * s.intermediate * s.hidden};
}

}  // namespace kvsim
