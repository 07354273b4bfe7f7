#include "sim/serving/length_times.hpp"

#include "kernels/traffic_linear.hpp"
#include "sim/base/check.hpp"

namespace kvsim {

Time PricedLengths::with_flushes(int buffer_length, std::int64_t rows, std::int64_t flushes) const {
    const Form form = served_form({.form = Form::kBuffered, .buffer_length = buffer_length});
    StepShape shape;
    shape[form] = {.sequences = rows, .new_tokens = rows};
    if (has_ring(form)) {
        shape[form].buffered_tokens = rows * (buffer_length - 1) / 2;
        shape[form].flushes = flushes;
        shape[form].flushed_tokens = flushes * buffer_length;
    }
    shape.decode = {rows, 0, 0};
    shape.logit_rows = rows;
    return pricer_.price(shape).time;
}

Time PricedLengths::step_time(int buffer_length, std::int64_t rows) const {
    KVSIM_CHECK(buffer_length >= 1 && rows > 0, "length {}, {} rows", buffer_length, rows);
    const auto length = static_cast<std::size_t>(buffer_length);
    const auto row = static_cast<std::size_t>(rows);
    if (known_.size() <= length) known_.resize(length + 1);
    if (known_[length].size() <= row) known_[length].resize(row + 1);
    Time& known = known_[length][row];
    if (known > Time()) return known;
    const std::int64_t flushes = rows / buffer_length;
    const std::int64_t more = rows % buffer_length;  // steps of the cycle that have one more
    known = with_flushes(buffer_length, rows, flushes);
    if (more > 0) {
        const Time most = with_flushes(buffer_length, rows, flushes + 1);
        known += Time((most - known).value() * more / buffer_length);
    }
    return known;
}

}  // namespace kvsim
