#include "sim/policies/form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

namespace kvsim {
namespace {

constexpr std::string_view kAutomatic = "auto";

DecodeForm make_recurrent(const LinearServing&, const LengthTimes*) {
    return {Form::kRecurrent, nullptr};
}

// The lengths that `linear` leaves to choice.
std::vector<int> choices(const LinearServing& linear) {
    std::vector<int> lengths;
    if (linear.choose_form) lengths.push_back(1);
    if (!linear.choose_length) {
        lengths.push_back(linear.buffer_length);
        return lengths;
    }
    for (const int length : automatic_lengths()) {
        if (length <= ring_capacity(linear)) lengths.push_back(length);
    }
    return lengths;
}

DecodeForm make_buffered(const LinearServing& linear, const LengthTimes* times) {
    if (served_form(linear) == Form::kRecurrent) return make_recurrent(linear, times);
    const int ring = ring_capacity(linear);
    DecodeForm form{Form::kBuffered, make_flush_policy({linear.buffer_length, ring, linear.flush})};
    if (!linear.choose_form && !linear.choose_length) return form;
    KVSIM_CHECK(times != nullptr, "a form is to be chosen by times, of which there are none");
    form.flush = make_chosen_length(choices(linear), ring, std::move(form.flush), *times);
    return form;
}

}  // namespace

std::span<const FormPolicyEntry> form_policies() {
    static constexpr std::array<FormPolicyEntry, 3> kTable{{
        {name(Form::kRecurrent), "reads and writes the state at every token", make_recurrent},
        {name(Form::kBuffered),
         "reads the state, writes one record per token, and the state once per buffer_length tokens",
         make_buffered},
        {kAutomatic, "recurrent or buffered, whichever is predicted to be faster for the batch",
         make_buffered},
    }};
    return kTable;
}

std::span<const int> automatic_lengths() {
    static constexpr std::array<int, 9> kLengths{2, 4, 8, 16, 24, 32, 48, 64, 128};
    return kLengths;
}

DecodeForm make_decode_form(const LinearServing& linear, const LengthTimes* times) {
    const std::string_view wanted = linear.choose_form ? kAutomatic : name(linear.form);
    std::vector<std::string_view> names;
    for (const FormPolicyEntry& entry : form_policies()) {
        if (entry.name == wanted) return entry.make(linear, times);
        names.push_back(entry.name);
    }
    throw_mistake({}, "linear.form",
                  fmt::format("expected one of {}, got {}{}", join(names), wanted,
                              linear.form == Form::kDirect ? ", which has no kernel yet" : ""));
}

void fill_buffers(FlushPolicy& flush, const LinearServing& linear, std::int64_t batch) {
    // Whole cycles, in which early first flushes and a choice of length settle.
    constexpr std::int64_t kRings = 4;
    const std::int64_t length = linear.buffer_length;
    const std::int64_t before = kRings * ((ring_capacity(linear) + length - 1) / length) * length;
    std::vector<std::int64_t> rows_with(static_cast<std::size_t>(length), 0);
    for (std::int64_t i = 0; i < batch; ++i) ++rows_with[static_cast<std::size_t>(i * length / batch)];
    StepShape unused;  // nobody prices these steps
    for (std::int64_t step = 1 - before - length; step < 0; ++step) {
        const std::int64_t fill = -before - step;
        if (fill >= 0) {
            for (std::int64_t i = 0; i < rows_with[static_cast<std::size_t>(fill)]; ++i) flush.join(step);
        }
        flush.step(step, {}, unused);
    }
}

}  // namespace kvsim
