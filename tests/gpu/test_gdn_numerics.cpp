// Errors of the decode kernels over 16,384 tokens, for every format of states and records.
//
// A token's output is rounded to bf16, which makes 1.7e-3 of its error whatever the kernel does. The floors
// of all formats, with exact arithmetic, are in tests/kernels/test_reference_numerics.cpp.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/gpu/history.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

struct Candidate {
    Form form;
    StateFormat state;
    RecordFormat records;  // of the buffered form
};

Drift print(const Candidate& c, double decay_low, const std::vector<RequestErrors>& errors) {
    const Drift d = drift_of(errors);
    const bool buffered = c.form == Form::kBuffered;
    fmt::print(
        "numerics: {:<10} {:<5} {:<6} decay {:.3f} to 1 | output {:.2e} {:.2e} | state {:.2e} {:.2e}\n",
        name(c.form), name(c.state), buffered ? name(c.records) : "-", decay_low, d.output_first,
        d.output_last, d.state_first, d.state_last);
    return d;
}

struct Limits {
    double output, state;
    bool steady_output, steady_state;  // the last window at most 1.2 times the first
};

// Recurrent states are rounded at every token. In fp32 that is nothing; in bf16 the errors are what buffering
// is compared with, and only reported.
Limits recurrent_limits(StateFormat state) {
    if (state == StateFormat::kBf16) return {1.0, 1.0, false, false};
    return {2e-3, 1e-5, true, false};
}

// Records in bf16 keep the state's error at theirs. With fp32 u what is left is rounding to fp32, or in the
// split format what decode does not see of the state, which builds up over some 1,000 tokens of slow decay.
Limits buffered_limits(StateFormat state, RecordFormat records) {
    const bool exact_records = records == RecordFormat::kFp32U;
    if (state == StateFormat::kBf16) return {6e-3, 6e-3, false, false};
    if (state == StateFormat::kFp32 && exact_records) return {4e-3, 1e-5, true, false};
    return {4e-3, 3e-3, true, !exact_records};
}

void check(const Candidate& c, double decay_low, const std::vector<RequestErrors>& errors) {
    const Drift d = print(c, decay_low, errors);
    const Limits limits =
        c.form == Form::kRecurrent ? recurrent_limits(c.state) : buffered_limits(c.state, c.records);
    INFO(fmt::format("{} {} {} decay {}", name(c.form), name(c.state), name(c.records), decay_low));
    CHECK(largest_output_error(errors) <= limits.output);
    CHECK(largest_state_error(errors) <= limits.state);
    if (limits.steady_output) CHECK(d.output_last <= 1.2 * d.output_first);
    if (limits.steady_state) CHECK(d.state_last <= 1.2 * d.state_first);
}

TEST_CASE("errors of decode over 16,384 tokens, a flush every 16", "[numerics]") {
    const LinearShape shape = gdn_shape(1, 2, StateFormat::kFp32);
    for (const double decay_low : {0.90, 0.998}) {
        // A ring of 24: records lie across its end in every second period.
        History history = decode_history(shape, {3, 16384, 24, 16, 256, decay_low}, 40);
        const std::vector<RequestTruth> truth = follow(history);
        std::vector<Candidate> candidates;
        for_each_format([&](StateFormat state, RecordFormat records) {
            candidates.push_back({Form::kBuffered, state, records});
        });
        for (const StateFormat state : kTestedStates)
            candidates.push_back({Form::kRecurrent, state, RecordFormat::kBf16});
        std::vector<double> bf16_states;  // last errors: buffered (either record format), recurrent
        for (const Candidate& c : candidates) {
            for (Launch& launch : history.launches) launch.form = c.form;
            const auto errors = play_and_compare(history, gdn_shape(1, 2, c.state, c.records), truth);
            check(c, decay_low, errors);
            if (c.state == StateFormat::kBf16) bf16_states.push_back(drift_of(errors).state_last);
        }
        // Rounded once in 16 tokens rather than at each.
        CHECK(bf16_states[0] < bf16_states[2]);
        CHECK(bf16_states[1] < bf16_states[2]);
    }
}

}  // namespace
}  // namespace kvsim
