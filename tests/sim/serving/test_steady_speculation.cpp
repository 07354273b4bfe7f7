// The steady decode of rows that speculate: cycles worked out by hand, acceptance by its closed form.
#include <cmath>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/serving/steady.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr std::int64_t kContext = 1024;

// 1 ms, 10 ns per record read and 5 us per flush.
FakePricer affine() {
    return FakePricer([](const StepShape& shape) {
        const LinearWork& w = shape[Form::kVerifyBuffered];
        return Time(1'000'000'000 + 10'000 * w.buffered_tokens + 5'000'000 * w.flushes);
    });
}

SampledRowsParts parts_of(Form form, int drafts, double rate, const StepPricer& pricer) {
    SampledRowsParts parts;
    parts.speculation = {.policy = "static", .drafts = drafts, .acceptance = {.rates = {rate}}};
    parts.linear = {.form = form, .buffer_length = 16, .drafts = drafts};
    parts.pricer = &pricer;
    return parts;
}

TEST_CASE("stored states, every draft kept: all steps are the same and yield T tokens per row") {
    const FakePricer pricer = affine();
    const RunResult r =
        serve_steady_speculation({8, kContext, 20}, parts_of(Form::kRecurrent, 3, 1.0, pricer));
    REQUIRE(pricer.shapes().size() == 20);
    for (const StepShape& shape : pricer.shapes()) {
        CHECK(shape[Form::kVerifyStored].sequences == 8);
        CHECK(shape[Form::kVerifyStored].new_tokens == 8 * 4);
        CHECK(shape.decode.context_sum == 8 * kContext);  // of the workload, not of rows that grow
        CHECK(shape.decode.context_max == kContext);
        CHECK(shape.logit_rows == 8 * 4);
        CHECK(shape.drafts == 3);
    }
    CHECK(r.generated_tokens == 20 * 8 * 4);
    CHECK(r.acceptance_length == 4.0);
    CHECK(*r.itl_ms.mean == Approx(1.0));
    CHECK(r.itl_ms.count == 20 * 8);
    CHECK(*r.itl_token_ms.mean == Approx(0.25));
    CHECK(*r.tpot_ms.p50 == Approx(0.25));
    CHECK(*r.output_tokens.max == 20 * 4);
    CHECK(r.output_tokens_per_s == Approx(8 * 4 / 1e-3));
    CHECK(r.requests.unfinished == 8);
    CHECK(r.busy == r.simulated);
}

TEST_CASE("buffered, every draft kept: phases are spread over the cycle") {
    // T = 4 in a ring of 20: a row flushes while there is room for four more, so its steps read 4, 8, 12 and
    // 16 records, and the last folds them. A row for each of 20 phases: five of every kind in any step.
    const FakePricer pricer = affine();
    SampledRowsParts parts = parts_of(Form::kBuffered, 3, 1.0, pricer);
    parts.linear.buffer_length = 20;
    const RunResult r = serve_steady_speculation({20, kContext, 12}, parts);
    for (const StepShape& shape : pricer.shapes()) {
        CHECK(shape[Form::kVerifyBuffered].buffered_tokens == 5 * (4 + 8 + 12 + 16));
        CHECK(shape[Form::kVerifyBuffered].flushes == 5);
        CHECK(shape[Form::kVerifyBuffered].flushed_tokens == 5 * 16);
    }
    CHECK(r.flushes == 12 * 5);
    CHECK(*r.itl_ms.max == Approx(1.0 + 200 * 1e-5 + 5 * 5e-3));  // 200 records, 5 flushes
    CHECK(*r.tpot_ms.max == Approx(*r.itl_ms.max / 4));
}

TEST_CASE("acceptance is that of the context") {
    // Rates halve every 1024 tokens: 0.4 at this context, 1.4 tokens per step of one draft, however many
    // tokens have come since. 102,400 draws: five standard deviations are 5 sqrt(0.4 x 0.6 / 102,400).
    const FakePricer pricer = affine();
    SampledRowsParts parts = parts_of(Form::kRecurrent, 1, 0.8, pricer);
    parts.speculation.acceptance.half_context = 1024.0;
    const RunResult r = serve_steady_speculation({64, kContext, 1600}, parts);
    CHECK(std::abs(*r.acceptance_length - 1.4) < 5 * std::sqrt(0.4 * 0.6 / 102'400));
}

TEST_CASE("it ends at the horizon") {
    const FakePricer pricer = affine();
    const SampledRowsParts parts = parts_of(Form::kRecurrent, 3, 1.0, pricer);
    const RunResult r = serve_steady_speculation({8, kContext, 20}, parts, time_from_us(2500.0));
    CHECK(r.steps == 2);
    CHECK(r.simulated == time_from_us(2500.0));
    CHECK(*r.output_tokens.p50 == 8.0);
    const RunResult none = serve_steady_speculation({8, kContext, 20}, parts, Time(1));
    CHECK(none.steps == 0);
    CHECK_FALSE(none.tpot_ms.mean);
}

TEST_CASE("more steps than tokens can be counted for are refused") {
    // 2^31 tokens at up to four per step.
    const FakePricer pricer = affine();
    const SampledRowsParts parts = parts_of(Form::kRecurrent, 3, 1.0, pricer);
    CHECK_THROWS_AS(serve_steady_speculation({1, kContext, std::int64_t{1} << 30}, parts), ConfigError);
}

}  // namespace
}  // namespace kvsim
