#include "kernels/calibrate/row_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kernels/reference/gdn.hpp"

namespace kvsim::calibrate {
namespace {

std::vector<double> widened(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

// Record `index` of a ring [heads, capacity, dim], packed as [heads, dim].
std::vector<double> record(const std::vector<float>& ring, int heads, int capacity, int dim, int index) {
    std::vector<double> values;
    for (int h = 0; h < heads; ++h) {
        const auto first = ring.begin() + (std::ptrdiff_t{h} * capacity + index) * dim;
        values.insert(values.end(), first, first + dim);
    }
    return values;
}

struct Record {
    std::vector<double> k, u, log_gate;
};
Record record_of(const RowContext& c, const RowSnapshot& row, int index) {
    const LinearShape& s = c.shape;
    return {record(row.ring_k, s.k_heads, c.ring_capacity, s.k_dim, index),
            record(row.ring_u, s.v_heads, c.ring_capacity, s.v_dim, index),
            record(row.ring_gate, s.v_heads, c.ring_capacity, 1, index)};
}

reference::GdnRing ring_before(const RowContext& c, const RowSnapshot& row) {
    reference::GdnRing ring;
    ring.fill = row.fill;
    for (int i = 0; i < row.fill; ++i) {
        const Record r = record_of(c, row, i);
        ring.k.insert(ring.k.end(), r.k.begin(), r.k.end());
        ring.u.insert(ring.u.end(), r.u.begin(), r.u.end());
        ring.log_gate.insert(ring.log_gate.end(), r.log_gate.begin(), r.log_gate.end());
    }
    return ring;
}

// The newest record of a ring that holds `fill` + 1.
Record newest(const RowContext& c, const reference::GdnRing& ring) {
    const auto tail = [](const std::vector<double>& values, std::size_t count) {
        return std::vector<double>(values.end() - static_cast<std::ptrdiff_t>(count), values.end());
    };
    const LinearShape& s = c.shape;
    return {tail(ring.k, std::size_t(s.k_heads) * s.k_dim), tail(ring.u, std::size_t(s.v_heads) * s.v_dim),
            tail(ring.log_gate, std::size_t(s.v_heads))};
}

class Comparison {
  public:
    explicit Comparison(int row) : row_(row) {}

    double expect(std::string_view what, std::span<const double> value, std::span<const double> truth,
                  double tolerance) {
        const double error = reference::relative_error(value, truth);
        // Written so that a NaN fails.
        if (!(error <= tolerance)) {
            result.fail(fmt::format("row {}: {} is off by {:.3g} (relative L2), more than {:.0e}", row_, what,
                                    error, tolerance));
        }
        return error;
    }

    Verification result;

  private:
    int row_;
};

}  // namespace

Verification check_row(const RowContext& c, const RowSnapshot& before, const RowSnapshot& after) {
    const LinearShape& s = c.shape;
    const reference::GdnToken token =
        reference::prepare(s, {c.a_log, c.dt_bias}, {before.qkv, before.a, before.b});
    std::vector<double> state = widened(before.state);
    std::vector<double> out(std::size_t(s.v_heads) * s.v_dim);
    Comparison comparison(before.row);

    if (c.ring_capacity == 0) {
        reference::recurrent_step(s, token, state, out);
    } else {
        const reference::GdnRing ring = ring_before(c, before);
        reference::GdnRing appended = ring;
        reference::buffered_step(s, token, false, state, appended, out);
        const Record truth = newest(c, appended);
        const Record value = record_of(c, after, before.fill);
        comparison.expect("the new key", value.k, truth.k, kBf16Tolerance);
        comparison.expect("the new u", value.u, truth.u, kBf16Tolerance);
        comparison.expect("the new log gate", value.log_gate, truth.log_gate, kFp32Tolerance);
        if (before.flush) {
            appended = ring;  // the flush empties the ring, so the step is taken again for its state
            reference::buffered_step(s, token, true, state, appended, out);
        }
    }
    comparison.result.max_error = comparison.expect("the output", widened(after.out), out, kBf16Tolerance);
    if (before.flush) {
        comparison.expect("the state", widened(after.state), state, kFp32Tolerance);
    } else if (before.state != after.state) {
        comparison.result.fail(fmt::format("row {}: the state changed without a flush", before.row));
    }
    return comparison.result;
}

std::vector<int> sampled_rows(int batch, std::span<const std::uint8_t> flush, int count) {
    std::set<int> rows{0, batch - 1};
    int flushing = 0;
    for (int row = 0; row < static_cast<int>(flush.size()) && flushing < 2; ++row) {
        if (flush[static_cast<std::size_t>(row)] == 0) continue;
        rows.insert(row);
        ++flushing;
    }
    const auto wanted = static_cast<std::size_t>(std::min(count, batch));
    for (int i = 0; i < count && rows.size() < wanted; ++i) rows.insert(i * batch / count);
    return {rows.begin(), rows.end()};
}

}  // namespace kvsim::calibrate
