// The one rule for percentiles: linear between closest ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvsim {

// Percentile `q` of [0, 1] of `count` >= 1 sorted samples that `at(rank)` returns. Rank q (count - 1), linear
// between its neighbours: method 7 of Hyndman and Fan (1996), numpy's default.
template <class At>
double percentile(std::int64_t count, double q, const At& at) {
    const double rank = q * static_cast<double>(count - 1);
    const auto below = static_cast<std::int64_t>(std::floor(rank));
    const std::int64_t above = std::min(below + 1, count - 1);
    const double low = at(below);
    return low + (rank - static_cast<double>(below)) * (at(above) - low);
}

}  // namespace kvsim
