// Decode and verify of linear-attention layers on the CPU in double: the truth for every test of the kernels.
//
// The recurrence is that of kernels/shapes.hpp with one gate per value head. A family joins by the function
// that turns its inputs into LinearTokens (GDN: kernels/reference/gdn.hpp); the forms below are shared.
// Sources: Gated Delta Networks, arXiv 2412.06464, eq. 10; buffered forms: KVBuffer, arXiv 2605.19049,
// sections 3 and 4.
#pragma once

#include <span>
#include <vector>

#include "kernels/reference/rounding.hpp"
#include "kernels/shapes.hpp"

namespace kvsim::reference {

// u_t = beta_t (v_t - gate_t S_{t-1} k_t) with the delta rule, beta_t v_t without it.
constexpr bool has_delta_rule(Family family) {
    return family == Family::kGdn || family == Family::kKda;
}

// One new token of one request, ready for the recurrence.
struct LinearToken {
    std::vector<double> q;          // [k_heads, k_dim], normalised and scaled as the family wants it
    std::vector<double> k;          // [k_heads, k_dim], equal to key_scale raw_k
    std::vector<double> raw_k;      // [k_heads, k_dim], as it came in: what a record holds
    std::vector<double> key_scale;  // [k_heads], 1 where keys are not normalised
    std::vector<double> v;          // [v_heads, v_dim]
    std::vector<double> log_gate;   // [v_heads], at most 0 and at least kLogGateFloor
    std::vector<double> beta;       // [v_heads]
};

// Smaller log gates count as this one: exp(-100) is zero for every storage format, and a sum of floors stays
// finite, where -inf would turn the difference of two sums, hence a record's decay, into a NaN.
inline constexpr double kLogGateFloor = -100.0;

// One token in recurrent form. state: [v_heads, v_dim, k_dim], updated in place; out: [v_heads, v_dim]. The
// output is that of the new state before storage rounds it; rounding is the caller's store().
void recurrent_step(const LinearShape& shape, const LinearToken& token, std::span<double> state,
                    std::span<double> out);

// Verify with stored states: the recurrent form over all tokens from `state`, which stays as it is. Returns
// the state after each token; accepting a of them continues from element a - 1. out: [T, v_heads, v_dim].
std::vector<std::vector<double>> verify_stored(const LinearShape& shape, std::span<const LinearToken> tokens,
                                               std::span<const double> state, std::span<double> out,
                                               StateRounding rounding = StateRounding::kNone);

// State and ring of one request in one layer. Record j of the tokens since the last flush lies at
// (start + j) mod capacity: raw key, u^ = key_scale u (so that u k^T = u^ raw_k^T), and the sum of log gates
// since the last flush. A record that was never written is a NaN.
struct BufferedCache {
    BufferedCache(const LinearShape& layer, int ring_capacity, Storage kept_as = {});

    int at(int record) const { return (start + record) % capacity; }

    LinearShape shape;
    Storage storage;
    std::vector<double> state;      // [v_heads, v_dim, k_dim], zero at first
    int capacity;                   // at least 1
    int start = 0;                  // index of the oldest record since the last flush, below capacity
    int fill = 0;                   // records since the last flush, at most capacity
    std::vector<double> ring_k;     // [capacity, k_heads, k_dim]
    std::vector<double> ring_u;     // [capacity, v_heads, v_dim]
    std::vector<double> ring_gate;  // [capacity, v_heads]
};

// One token in buffered form, fill < capacity: appends its record, then folds all fill + 1 records into the
// state when `flush` is set. The output does not depend on the flag. out: [v_heads, v_dim].
void buffered_step(BufferedCache& cache, const LinearToken& token, bool flush, std::span<double> out);

// Verify in buffered form, T tokens with fill + T <= capacity: with `flush`, first folds the committed
// records into the state (fill becomes 0 and the gates of new records count from there); then writes T
// records behind the committed ones, which stay uncommitted. out: [T, v_heads, v_dim]. The caller accepts
// the first a of the T tokens by `cache.fill += a`; nothing is rolled back. Tokens see each other through
// their records, so that verify equals as many buffered steps also where records are rounded.
void verify_buffered(BufferedCache& cache, std::span<const LinearToken> tokens, bool flush,
                     std::span<double> out);

// ||value - truth|| / ||truth||; infinity when value holds a NaN.
double relative_error(std::span<const double> value, std::span<const double> truth);

}  // namespace kvsim::reference
