#include "kernels/calibrate/plan.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_stream.hpp"
#include "sim/base/check.hpp"

namespace kvsim::calibrate {
namespace {

constexpr Bytes kRotation{320'000'000};  // as in public cold-L2 figures of these kernels
// Hashed sets and pinned lines make an L2 forget more slowly than its size says.
constexpr int kL2MultipleOfStates = 4;
constexpr int kL2MultipleOfOthers = 2;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// Records read, summed over rows. Levels of mixed phases are the same in every order of the rows.
std::int64_t buffered_tokens(const Case& c) {
    if (!has_ring(c.kernel)) return 0;
    const RowPhases phases = row_phases(c, 0);
    return std::accumulate(phases.fill.begin(), phases.fill.end(), std::int64_t{0});
}

LinearWork work_of(const Case& c) {
    LinearWork w{c.batch, std::int64_t{c.batch} * c.tokens, buffered_tokens(c), c.flush_rows, 0};
    w.flushed_tokens = w.flushes * folded_records(form_of(c.kernel), c.fill.value_or(c.last_fill()));
    return w;
}

Footprint linear_footprint(const Case& c) {
    const LinearTraffic t = linear_traffic(c.shape, form_of(c.kernel), work_of(c));
    const std::int64_t state = state_bytes(c.shape), tokens = std::int64_t{c.batch} * c.tokens;
    const std::int64_t stored = c.kernel == Kernel::kLinearVerifyStored ? tokens * state : 0;
    const std::int64_t read = has_ring(c.kernel) ? state_read_bytes(c.shape) : state;
    return {Bytes(c.batch * read + stored), Bytes(t.buffer_read + t.buffer_write + t.io_read + t.io_write),
            Bytes(c.batch * (state + c.buffer_length * record_bytes(c.shape)) + stored +
                  tokens * (token_input_bytes(c.shape) + token_output_bytes(c.shape)))};
}

// That touch enough of records, inputs and outputs.
std::int64_t sets_of_others(const Footprint& launch, const RotationLimits& limits) {
    return ceil_div((limits.l2 * kL2MultipleOfOthers).value(), launch.others.value());
}

}  // namespace

Form form_of(Kernel linear) {
    switch (linear) {
        case Kernel::kLinearRecurrent:
            return Form::kRecurrent;
        case Kernel::kLinearBuffered:
            return Form::kBuffered;
        case Kernel::kLinearVerifyStored:
            return Form::kVerifyStored;
        case Kernel::kLinearVerifyBuffered:
            return Form::kVerifyBuffered;
        default:
            break;
    }
    KVSIM_CHECK(false, "{} is no form of a layer", name(linear));
    return {};
}

RowPhases row_phases(const Case& c, std::uint64_t seed) {
    KVSIM_CHECK(has_ring(c.kernel), "{} has no phases", name(c.kernel));
    KVSIM_CHECK(c.flush_rows >= 0 && c.flush_rows <= c.batch, "{} of {} rows flush", c.flush_rows, c.batch);
    std::mt19937_64 random(seed);
    std::vector<int> order(static_cast<std::size_t>(c.batch));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);

    RowPhases phases;
    phases.fill.resize(order.size());
    phases.flush.resize(order.size());
    const int others = c.batch - c.flush_rows;
    for (int i = 0; i < c.batch; ++i) {
        const auto row = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
        const bool flushes = i < c.flush_rows;
        // Midpoints of `others` equal steps over last_fill() levels: one row alone sits in the middle.
        const int level = others > 0 ? (2 * (i - c.flush_rows) + 1) * c.last_fill() / (2 * others) : 0;
        phases.fill[row] = c.fill ? *c.fill : flushes ? c.last_fill() : level;
        phases.flush[row] = flushes;
    }
    std::uniform_int_distribution<std::int32_t> start(0, c.buffer_length - 1);
    for (int i = 0; i < c.batch; ++i) phases.start.push_back(start(random));
    return phases;
}

ProfileRow describe(const Case& c) {
    ProfileRow row;
    row.kernel = name(c.kernel);
    if (c.kernel == Kernel::kEmpty) return row;
    row.l2 = c.l2;
    if (!is_linear(c.kernel)) {
        const Footprint launch = footprint(c);
        row.bytes = (launch.states + launch.others).value();
        return row;
    }
    row.family = c.shape.family;
    row.form = form_of(c.kernel);
    row.k_heads = c.shape.k_heads;
    row.v_heads = c.shape.v_heads;
    row.k_dim = c.shape.k_dim;
    row.v_dim = c.shape.v_dim;
    row.state_dtype = c.shape.state;
    row.batch = c.batch;
    row.tokens = c.tokens;
    if (has_ring(c.kernel)) {
        row.records = c.shape.records;
        row.buffer_length = c.buffer_length;
        if (c.fill) row.fill = *c.fill;
        row.buffered_tokens = buffered_tokens(c);
        row.flush_rows = c.flush_rows;
    }
    return row;
}

Footprint footprint(const Case& c) {
    switch (c.kernel) {
        case Kernel::kEmpty:
            return {};
        case Kernel::kStreamCopy:
            return {c.bytes * 2, Bytes(0), c.bytes * 2};
        case Kernel::kStreamRead:
            return {c.bytes, Bytes(0), c.bytes};
        case Kernel::kStreamAppend: {
            const Bytes written(appended_bytes(c.bytes.value()));
            return {c.bytes, written, c.bytes + written * kAppendRecords};
        }
        default:
            return linear_footprint(c);
    }
}

int rotation_sets(const Case& c, const RotationLimits& limits) {
    if (c.l2 == L2State::kWarm || c.kernel == Kernel::kEmpty) return 1;
    const Footprint launch = footprint(c);
    const Bytes states = std::max(kRotation, limits.l2 * kL2MultipleOfStates);
    std::int64_t sets = std::max<std::int64_t>(2, ceil_div(states.value(), launch.states.value()));
    if (launch.others > Bytes(0)) {
        const std::int64_t wanted = sets_of_others(launch, limits);
        sets = std::max(sets, std::min(wanted, limits.pool.value() / launch.pool.value()));
    }
    return static_cast<int>(sets);
}

int rotations_to_repeat(const Case& c, const RotationLimits& limits) {
    if (c.kernel != Kernel::kStreamAppend) return 1;
    const std::int64_t rotations = ceil_div(sets_of_others(footprint(c), limits), rotation_sets(c, limits));
    return static_cast<int>(std::min(rotations, kAppendRecords));
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

std::vector<std::size_t> measuring_order(std::size_t count, std::uint64_t seed) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    return order;
}

}  // namespace kvsim::calibrate
