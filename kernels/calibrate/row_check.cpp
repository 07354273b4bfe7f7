#include "kernels/calibrate/row_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <stdexcept>

#include "kernels/reference/gdn.hpp"

namespace kvsim::calibrate {
namespace {

using reference::BufferedCache;
using reference::LinearToken;
using reference::RecordRounding;
using reference::StateRounding;

std::vector<double> widened(std::span<const float> values) {
    return {values.begin(), values.end()};
}

// Unlike ==, true of equal NaNs and false of 0 and -0.
bool same_bits(std::span<const float> a, std::span<const float> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
        return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    });
}

StateRounding rounding_of(StateFormat format) {
    switch (format) {
        case StateFormat::kFp32:
            return StateRounding::kFp32;
        case StateFormat::kBf16:
            return StateRounding::kBf16;
        case StateFormat::kSplit:
            return StateRounding::kSplit;
        case StateFormat::kFp16:
            break;
    }
    throw std::logic_error("the reference has no fp16 states");
}

// Element `index` of an array [heads, count, dim], packed as [heads, dim].
std::vector<float> packed(std::span<const float> array, int heads, int count, int dim, int index) {
    std::vector<float> values;
    for (int h = 0; h < heads; ++h) {
        const auto part = array.subspan((std::size_t(h) * count + index) * dim, dim);
        values.insert(values.end(), part.begin(), part.end());
    }
    return values;
}

// What a row's ring holds at one index.
struct Record {
    std::vector<float> k, u, gate;
};
Record record_at(const RowContext& c, const RowSnapshot& row, int index) {
    const LinearShape& s = c.shape;
    return {packed(row.ring_k, s.k_heads, c.ring_capacity, s.k_dim, index),
            packed(row.ring_u, s.v_heads, c.ring_capacity, s.v_dim, index),
            packed(row.ring_gate, s.v_heads, c.ring_capacity, 1, index)};
}

// The part of an array [count, size] that `index` names.
template <class T>
std::span<T> part_of(std::vector<T>& array, int index, std::size_t size) {
    return std::span(array).subspan(std::size_t(index) * size, size);
}

// New records are taken unrounded: the tolerances cover their rounding.
BufferedCache cache_of(const RowContext& c, const RowSnapshot& row) {
    BufferedCache cache(c.shape, c.ring_capacity, {rounding_of(c.shape.state), RecordRounding::kNone});
    cache.state = widened(row.state);
    cache.start = row.start;
    cache.fill = row.fill;
    for (int i = 0; i < c.ring_capacity; ++i) {
        const Record record = record_at(c, row, i);
        std::copy(record.k.begin(), record.k.end(), part_of(cache.ring_k, i, record.k.size()).begin());
        std::copy(record.u.begin(), record.u.end(), part_of(cache.ring_u, i, record.u.size()).begin());
        std::copy(record.gate.begin(), record.gate.end(),
                  part_of(cache.ring_gate, i, record.gate.size()).begin());
    }
    return cache;
}

std::vector<LinearToken> tokens_of(const RowContext& c, const RowSnapshot& row) {
    const auto heads = static_cast<std::size_t>(c.shape.v_heads);
    const std::size_t count = row.a.size() / heads, width = row.qkv.size() / count;
    const std::span qkv(row.qkv), a(row.a), b(row.b);
    std::vector<LinearToken> tokens;
    for (std::size_t t = 0; t < count; ++t) {
        tokens.push_back(reference::prepare(
            c.shape, {c.a_log, c.dt_bias},
            {qkv.subspan(t * width, width), a.subspan(t * heads, heads), b.subspan(t * heads, heads)}));
    }
    return tokens;
}

// One row before and after a launch, and what was found so far.
class RowCheck {
  public:
    RowCheck(const RowContext& c, const RowSnapshot& before, const RowSnapshot& after)
        : c_(c), before_(before), after_(after) {}

    Verification run() {
        if (before_.padding) {
            padding();
            return result_;
        }
        const std::vector<LinearToken> tokens = tokens_of(c_, before_);
        switch (c_.form) {
            case Form::kRecurrent:
                recurrent(tokens.front());
                break;
            case Form::kVerifyStored:
                verify_stored(tokens);
                break;
            case Form::kBuffered:
            case Form::kVerifyBuffered:
                buffered(tokens);
                break;
            case Form::kDirect:
                throw std::logic_error("the direct form has no state to check");
        }
        return result_;
    }

  private:
    double expect(std::string_view what, std::span<const float> value, std::span<const double> truth,
                  double tolerance) {
        const double error = reference::relative_error(widened(value), truth);
        // Written so that a NaN fails.
        if (!(error <= tolerance)) {
            result_.fail(fmt::format("row {}: {} is off by {:.3g} (relative L2), more than {:.0e}",
                                     before_.row, what, error, tolerance));
        }
        return error;
    }

    void expect_untouched(std::string_view what, std::span<const float> before,
                          std::span<const float> after) {
        if (!same_bits(before, after)) result_.fail(fmt::format("row {}: {}", before_.row, what));
    }

    void expect_outputs(std::span<const double> truth, std::size_t tokens) {
        const std::size_t size = truth.size() / tokens;
        for (std::size_t t = 0; t < tokens; ++t) {
            const double error = expect(tokens == 1 ? "the output" : fmt::format("the output of token {}", t),
                                        std::span(after_.out).subspan(t * size, size),
                                        truth.subspan(t * size, size), kBf16Tolerance);
            result_.max_error = std::max(result_.max_error, error);
        }
    }

    void expect_state(std::string_view what, std::span<const float> value, std::span<const double> truth) {
        expect(what, value, truth, c_.shape.state == StateFormat::kBf16 ? kBf16Tolerance : kFp32Tolerance);
    }

    void expect_same_state(std::string_view why) {
        expect_untouched(fmt::format("the state changed {}", why), before_.state, after_.state);
    }

    void padding() {
        const auto zero = [](float x) { return x == 0.0f; };
        if (!std::all_of(after_.out.begin(), after_.out.end(), zero)) {
            result_.fail(fmt::format("row {}: the output of a padding row is not zero", before_.row));
        }
        expect_same_state("on a padding row");
        for (const auto part :
             {&RowSnapshot::states, &RowSnapshot::ring_k, &RowSnapshot::ring_u, &RowSnapshot::ring_gate}) {
            expect_untouched("a padding row wrote records or states", before_.*part, after_.*part);
        }
    }

    void recurrent(const LinearToken& token) {
        std::vector<double> state = widened(before_.state), out(value_width());
        reference::recurrent_step(c_.shape, token, state, out);
        expect_outputs(out, 1);
        expect_state("the state", after_.state, state);
    }

    void verify_stored(std::span<const LinearToken> tokens) {
        std::vector<double> out(tokens.size() * value_width());
        const auto states = reference::verify_stored(c_.shape, tokens, widened(before_.state), out);
        expect_outputs(out, tokens.size());
        const std::size_t size = before_.state.size();
        for (std::size_t t = 0; t < states.size(); ++t) {
            expect_state(fmt::format("the state after token {}", t),
                         std::span(after_.states).subspan(t * size, size), states[t]);
        }
        expect_same_state("in a verify that stores states elsewhere");
    }

    void buffered(std::span<const LinearToken> tokens) {
        BufferedCache cache = cache_of(c_, before_);
        std::set<int> appended;
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            appended.insert(cache.at(before_.fill + static_cast<int>(t)));
        }
        std::vector<double> out(tokens.size() * value_width());
        if (c_.form == Form::kBuffered) {
            reference::buffered_step(cache, tokens.front(), before_.flush, out);
        } else {
            reference::verify_buffered(cache, tokens, before_.flush, out);
        }
        expect_outputs(out, tokens.size());
        for (int i = 0; i < c_.ring_capacity; ++i) expect_record(cache, i, appended.count(i) != 0);
        if (before_.flush) {
            expect_state("the state", after_.state, cache.state);
        } else {
            expect_same_state("without a flush");
        }
    }

    void expect_record(BufferedCache& truth, int index, bool is_new) {
        const Record value = record_at(c_, after_, index);
        if (!is_new) {
            const Record old = record_at(c_, before_, index);
            const std::string what = fmt::format("record {} of the ring changed", index);
            expect_untouched(what, old.k, value.k);
            expect_untouched(what, old.u, value.u);
            expect_untouched(what, old.gate, value.gate);
            return;
        }
        expect(fmt::format("the key of record {}", index), value.k,
               part_of(truth.ring_k, index, value.k.size()), 0.0);
        expect(fmt::format("the u of record {}", index), value.u,
               part_of(truth.ring_u, index, value.u.size()),
               c_.shape.records == RecordFormat::kBf16 ? kBf16Tolerance : kFp32Tolerance);
        expect(fmt::format("the log gate of record {}", index), value.gate,
               part_of(truth.ring_gate, index, value.gate.size()), kFp32Tolerance);
    }

    std::size_t value_width() const { return std::size_t(c_.shape.v_heads) * c_.shape.v_dim; }

    const RowContext& c_;
    const RowSnapshot& before_;
    const RowSnapshot& after_;
    Verification result_;
};

}  // namespace

Verification check_row(const RowContext& c, const RowSnapshot& before, const RowSnapshot& after) {
    return RowCheck(c, before, after).run();
}

Verification check_bystander(const RowSnapshot& before, const RowSnapshot& after) {
    Verification result;
    for (const auto part :
         {&RowSnapshot::state, &RowSnapshot::ring_k, &RowSnapshot::ring_u, &RowSnapshot::ring_gate}) {
        if (!same_bits(before.*part, after.*part)) result.fail("a slot that no row names has changed");
    }
    return result;
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
