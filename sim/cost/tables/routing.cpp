#include "sim/cost/tables/routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/base/random.hpp"

namespace kvsim {

namespace {

using Loads = std::vector<std::int64_t>;

std::int64_t total(const Loads& loads) {
    return std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
}

// Adds `count` rows one by one, or takes them away, each rank in turn on its least or most loaded expert.
void level(Loads& loads, int ranks, std::int64_t count, std::int64_t most) {
    const auto per_rank = static_cast<std::ptrdiff_t>(loads.size()) / ranks;
    const bool add = count > 0;
    for (std::int64_t left = std::abs(count); left > 0;) {
        bool changed = false;
        for (int rank = 0; rank < ranks && left > 0; ++rank) {
            const auto begin = loads.begin() + rank * per_rank;
            const auto expert =
                add ? std::min_element(begin, begin + per_rank) : std::max_element(begin, begin + per_rank);
            if (add ? *expert >= most : *expert <= 0) continue;
            *expert += add ? 1 : -1;
            --left;
            changed = true;
        }
        if (!changed) return;
    }
}

Loads draw_loads(const MoeShape& layer, std::int64_t tokens, int ranks, double alpha, RandomStream& random) {
    const std::int64_t pairs = tokens * layer.top_k;
    const bool many = pairs > layer.experts;
    const double low = many ? 1.0 : 0.01;
    const double high = many ? std::max(1.0, 0.8 * static_cast<double>(tokens)) : 2.0;
    const double e = 1.0 - alpha;
    const double low_e = std::pow(low, e);
    const double high_e = std::pow(high, e);
    std::vector<double> popularity(static_cast<std::size_t>(layer.experts));
    for (double& x : popularity) x = std::pow(low_e + random.uniform() * (high_e - low_e), 1.0 / e);
    const double sum = std::accumulate(popularity.begin(), popularity.end(), 0.0);
    Loads loads;
    for (const double x : popularity) {
        loads.push_back(std::min<std::int64_t>(tokens, std::llround(x / sum * static_cast<double>(pairs))));
    }
    level(loads, ranks, pairs - total(loads), tokens);
    return loads;
}

}  // namespace

RankRouting balanced_routing(const MoeShape& layer, std::int64_t tokens, int ranks) {
    const auto pairs = static_cast<double>(tokens * layer.top_k);
    return {std::max(1.0, std::min<double>(layer.experts, pairs) / ranks), std::max(1.0, pairs / ranks)};
}

RankRouting power_law_routing(const MoeShape& layer, std::int64_t tokens, int ranks, double alpha) {
    KVSIM_CHECK(layer.experts % ranks == 0 && alpha != 1.0, "{} experts on {} ranks, exponent {}",
                layer.experts, ranks, alpha);
    constexpr int kDraws = 4;
    RandomStream random(1, "power_law_routing");
    RankRouting mean;
    for (int draw = 0; draw < kDraws; ++draw) {
        const Loads loads = draw_loads(layer, tokens, ranks, alpha, random);
        const auto per_rank = static_cast<std::ptrdiff_t>(loads.size()) / ranks;
        std::int64_t rows = -1;
        std::ptrdiff_t distinct = 0;
        for (auto begin = loads.begin(); begin != loads.end(); begin += per_rank) {
            const std::int64_t sum = std::accumulate(begin, begin + per_rank, std::int64_t{0});
            if (sum <= rows) continue;
            rows = sum;
            distinct = std::count_if(begin, begin + per_rank, [](std::int64_t load) { return load > 0; });
        }
        mean.rows += static_cast<double>(rows) / kDraws;
        mean.distinct_experts += static_cast<double>(distinct) / kDraws;
    }
    return mean;
}

}  // namespace kvsim
