#include "sim/policies/form.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

namespace kvsim {
namespace {

DecodeForm make_recurrent(const LinearServing&) {
    return {Form::kRecurrent, nullptr};
}

// A record that is folded at once was never buffered: a buffer of one token is the recurrent kernel's work.
DecodeForm make_buffered(const LinearServing& linear) {
    if (linear.buffer_length == 1) return make_recurrent(linear);
    return {Form::kBuffered, flush_policies().front().make(linear.buffer_length)};
}

}  // namespace

std::span<const FormPolicyEntry> form_policies() {
    static constexpr std::array<FormPolicyEntry, 2> kTable{{
        {name(Form::kRecurrent), "reads and writes the state at every token", make_recurrent},
        {name(Form::kBuffered),
         "reads the state, writes one record per token, and the state once per buffer_length tokens",
         make_buffered},
    }};
    return kTable;
}

DecodeForm make_decode_form(const LinearServing& linear) {
    std::vector<std::string_view> names;
    for (const FormPolicyEntry& entry : form_policies()) {
        if (entry.name == name(linear.form)) return entry.make(linear);
        names.push_back(entry.name);
    }
    throw_mistake({}, "linear.form",
                  fmt::format("expected one of {}, got {}", join(names), name(linear.form)));
}

}  // namespace kvsim
