// Long random histories of decode, verification, acceptance and flushes against the recurrent form in double.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/gpu/history.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

struct Counts {
    int steps = 0, rejected = 0, flushes = 0;  // rows of verifications; tokens of theirs; rows
};
Counts counts_of(const History& history) {
    Counts c;
    for (const Launch& launch : history.launches) {
        for (const Row& row : launch.rows) {
            if (row.slot < 0) continue;
            c.flushes += row.flush;
            if (launch.form != Form::kVerifyBuffered) continue;
            ++c.steps;
            c.rejected += launch.tokens - row.accepted;
        }
    }
    return c;
}

std::vector<RequestErrors> play(const std::string& what, const History& history, const LinearShape& shape,
                                const std::vector<RequestTruth>& truth) {
    const auto errors = play_and_compare(history, shape, truth);
    const Drift d = drift_of(errors);
    fmt::print("numerics: {:<10} {:<5} {:<6} | output {:.2e} {:.2e} | state {:.2e} {:.2e}\n", what,
               name(shape.state), name(shape.records), d.output_first, d.output_last, d.state_first,
               d.state_last);
    return errors;
}

// Also with grouped heads and a ring that leaves no slack: 9 tokens behind the 9 that a step may have
// accepted.
TEST_CASE("any order of decode, verification and flushes follows the recurrent form", "[history]") {
    const LinearShape shape = gdn_shape(2, 4, StateFormat::kFp32);
    const History history = mixed_history(shape, {5, 400, 2 * kMaxTokens, 50, 0.4, 0.90}, 50);
    const std::vector<RequestTruth> truth = follow(history);
    for_each_format([&](StateFormat state, RecordFormat records) {
        const auto errors = play("history", history, gdn_shape(2, 4, state, records), truth);
        INFO(fmt::format("{} state, {} records", name(state), name(records)));
        const bool bf16 = state == StateFormat::kBf16;
        CHECK(largest_output_error(errors) <= (bf16 ? 6e-3 : 4e-3));
        const bool exact = state == StateFormat::kFp32 && records == RecordFormat::kFp32U;
        CHECK(largest_state_error(errors) <= (bf16 ? 6e-3 : exact ? 1e-5 : 3e-3));
    });
}

TEST_CASE("errors do not grow over thousands of steps of speculation with rejected drafts", "[speculation]") {
    const LinearShape shape = gdn_shape(1, 2, StateFormat::kFp32);
    const History history = mixed_history(shape, {6, 3072, 24, 256, 0.05, 0.998}, 60);
    const Counts counts = counts_of(history);
    CHECK(counts.steps > 10000);
    CHECK(counts.rejected > 20000);
    CHECK(counts.flushes > 2000);
    const std::vector<RequestTruth> truth = follow(history);
    for (const StateFormat state : {StateFormat::kFp32, StateFormat::kSplit}) {
        const auto errors = play("speculation", history, gdn_shape(1, 2, state), truth);
        INFO(name(state));
        CHECK(largest_output_error(errors) <= 4e-3);
        CHECK(largest_state_error(errors) <= 3e-3);
        const Drift d = drift_of(errors);
        CHECK(d.output_last <= 1.2 * d.output_first);
        CHECK(d.state_last <= 1.2 * d.state_first);
    }
}

}  // namespace
}  // namespace kvsim
