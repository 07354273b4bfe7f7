#include "kernels/calibrate/plan.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/traffic_linear.hpp"
#include "sim/base/check.hpp"

namespace kvsim::calibrate {
namespace {

constexpr Bytes kRotation{320'000'000};  // as in public cold-L2 figures of these kernels
constexpr int kL2Multiple =
    4;  // hashed sets and pinned lines make an L2 forget more slowly than its size says

}  // namespace

RowPhases row_phases(const Case& c, std::uint64_t seed) {
    KVSIM_CHECK(c.kernel == Kernel::kLinearBuffered, "{} has no phases", name(c.kernel));
    KVSIM_CHECK(c.flush_rows >= 0 && c.flush_rows <= c.batch, "{} of {} rows flush", c.flush_rows, c.batch);
    std::vector<int> order(static_cast<std::size_t>(c.batch));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));

    RowPhases phases{std::vector<std::int32_t>(order.size()), std::vector<std::uint8_t>(order.size())};
    const int others = c.batch - c.flush_rows;
    for (int i = 0; i < c.batch; ++i) {
        const auto row = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
        const bool flushes = i < c.flush_rows;
        // Midpoints of `others` equal steps over C - 1 levels: one row alone sits in the middle.
        const int level =
            others > 0 ? (2 * (i - c.flush_rows) + 1) * (c.buffer_length - 1) / (2 * others) : 0;
        phases.fill[row] = c.fill ? *c.fill : flushes ? c.buffer_length - 1 : level;
        phases.flush[row] = flushes;
    }
    return phases;
}

ProfileRow describe(const Case& c) {
    ProfileRow row;
    row.kernel = name(c.kernel);
    if (c.kernel == Kernel::kEmpty) return row;
    row.l2 = c.l2;
    if (!is_linear(c.kernel)) {
        row.bytes = c.bytes.value() * (c.kernel == Kernel::kStreamCopy ? 2 : 1);
        return row;
    }
    row.family = c.shape.family;
    row.form = c.kernel == Kernel::kLinearRecurrent ? Form::kRecurrent : Form::kBuffered;
    row.k_heads = c.shape.k_heads;
    row.v_heads = c.shape.v_heads;
    row.k_dim = c.shape.k_dim;
    row.v_dim = c.shape.v_dim;
    row.state_dtype = c.shape.state;
    row.batch = c.batch;
    row.tokens = 1;
    if (c.kernel == Kernel::kLinearBuffered) {
        const RowPhases phases = row_phases(c, 0);  // the sum is the same for every order of the rows
        row.buffer_length = c.buffer_length;
        if (c.fill) row.fill = *c.fill;
        row.buffered_tokens = std::accumulate(phases.fill.begin(), phases.fill.end(), std::int64_t{0});
        row.flush_rows = c.flush_rows;
    }
    return row;
}

Bytes distinct_bytes(const Case& c) {
    switch (c.kernel) {
        case Kernel::kEmpty:
            return Bytes(0);
        case Kernel::kStreamCopy:
            return c.bytes * 2;
        case Kernel::kStreamRead:
            return c.bytes;
        case Kernel::kLinearRecurrent:
        case Kernel::kLinearBuffered:
            return Bytes(c.batch * state_bytes(c.shape));
    }
    return Bytes(0);
}

int rotation_sets(const Case& c, Bytes l2_capacity) {
    if (c.l2 == L2State::kWarm || c.kernel == Kernel::kEmpty) return 1;
    const std::int64_t target = std::max(kRotation, l2_capacity * kL2Multiple).value();
    const std::int64_t launch = distinct_bytes(c).value();
    return static_cast<int>(std::max<std::int64_t>(2, (target + launch - 1) / launch));
}

bool same_group(const Case& a, const Case& b) {
    return a.kernel == b.kernel && a.shape == b.shape && a.buffer_length == b.buffer_length;
}

std::vector<std::span<const Case>> groups(std::span<const Case> cases) {
    std::vector<std::span<const Case>> result;
    for (std::size_t first = 0; first < cases.size();) {
        std::size_t last = first + 1;
        while (last < cases.size() && same_group(cases[first], cases[last])) ++last;
        result.push_back(cases.subspan(first, last - first));
        first = last;
    }
    return result;
}

}  // namespace kvsim::calibrate
