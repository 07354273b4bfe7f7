// Bytes of the all-to-all that expert parallelism needs: dispatch sends every token to the ranks that hold
// its experts, combine sends their sums back. As DeepEP's kernels do it (deepseek-ai/DeepEP, README): a token
// goes once to each rank however many of its experts are there, and a rank adds up its experts' outputs
// first.
#pragma once

#include <cmath>
#include <cstdint>

namespace kvsim {

struct ExchangeShape {
    std::int64_t row_bytes = 0;  // of one token
    int experts = 0;             // E, in equal shares over the ranks
    int top_k = 0;               // k
    int ranks = 1;               // R
};

struct ExchangeTraffic {
    std::int64_t sent = 0;  // over the links by one rank, which receives as much
    std::int64_t dram = 0;  // of one rank: rows read and rows written, those that stay included

    bool operator==(const ExchangeTraffic&) const = default;
};

// Ranks on which the k experts of a token lie when it draws distinct ones of E at random:
// R (1 - C(E - E/R, k) / C(E, k)).
inline double expected_expert_ranks(const ExchangeShape& s) {
    const int held = s.experts / s.ranks;
    double none_here = 1.0;  // probability that a rank holds none of them
    for (int drawn = 0; drawn < s.top_k; ++drawn)
        none_here *= static_cast<double>(s.experts - held - drawn) / (s.experts - drawn);
    return s.ranks * (1.0 - none_here);
}

// Dispatch, or combine, of `tokens` on every rank.
inline ExchangeTraffic exchange_traffic(const ExchangeShape& s, std::int64_t tokens) {
    const double rows = static_cast<double>(tokens) * expected_expert_ranks(s);
    const auto bytes = static_cast<double>(s.row_bytes);
    return {std::llround(rows * bytes * (s.ranks - 1) / s.ranks), 2 * std::llround(rows * bytes)};
}

}  // namespace kvsim
