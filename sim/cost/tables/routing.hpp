// How the published tables of fused experts distribute tokens.
#pragma once

#include <cstdint>

#include "kernels/traffic_moe.hpp"

namespace kvsim {

struct RankRouting {
    double distinct_experts = 0.0;  // of the rank
    double rows = 0.0;
};

// Balanced: every expert of the layer gets the same, min(E, k x tokens) of them some. The mean of the ranks.
RankRouting balanced_routing(const MoeShape& layer, std::int64_t tokens, int ranks);

// The tables' power law: E loads drawn from a density proportional to x^-alpha, on [1, 0.8 tokens] when there
// are more pairs than experts and on [0.01, 2] else; scaled to k x tokens and rounded; no expert above
// `tokens`; differences levelled on the least (or most) loaded expert of each rank in turn. The busiest rank,
// mean over a few draws with a fixed seed.
RankRouting power_law_routing(const MoeShape& layer, std::int64_t tokens, int ranks, double alpha);

}  // namespace kvsim
