// The steady decode against the closed forms of a cycle.
#include <string>
#include <utility>

#include "sim/policies/flush.hpp"
#include "sim/serving/length_times.hpp"
#include "sim/serving/steady.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

LinearServing linear(Form form, int m) {
    return {form, m, StateFormat::kFp32};
}

// 1 us per row, 10 ns per record read, 5 us per flush.
FakePricer affine() {
    return FakePricer([](const StepShape& shape) {
        const LinearWork& w = shape[Form::kBuffered];
        return Time(1'000'000 * w.sequences + 10'000 * w.buffered_tokens + 5'000'000 * w.flushes);
    });
}

TEST_CASE("a batch that is a multiple of the length has the same step every time") {
    constexpr int kLength = 8;
    constexpr std::int64_t kBatch = 32;
    const FakePricer pricer = affine();
    const RunResult r = serve_steady({kBatch, 1024, 24}, linear(Form::kBuffered, kLength), pricer);
    REQUIRE(pricer.shapes().size() == 24);
    for (const StepShape& shape : pricer.shapes()) {
        const LinearWork& w = shape[Form::kBuffered];
        CHECK(w.sequences == kBatch);
        CHECK(w.new_tokens == kBatch);
        CHECK(w.buffered_tokens == kBatch * (kLength - 1) / 2);  // mean fill (m - 1)/2
        CHECK(w.flushes == kBatch / kLength);
        CHECK(shape.decode.sequences == kBatch);
        CHECK(shape.decode.context_sum == kBatch * 1024);
        CHECK(shape.decode.context_max == 1024);
        CHECK(shape.logit_rows == kBatch);
        CHECK(shape.prefill.sequences == 0);
    }
    // 32 us + 112 records x 10 ns + 4 flushes x 5 us = 53.12 us
    CHECK(*r.itl_ms.p50 == Approx(0.05312));
    CHECK(*r.itl_ms.p99 == Approx(0.05312));
    CHECK(*r.tpot_ms.mean == Approx(0.05312));
    CHECK(r.itl_ms.count == kBatch * 24);
    CHECK(r.flushes == 24 * 4);
    CHECK(r.busy == r.simulated);
    CHECK(r.output_tokens_per_s == Approx(32.0 / 53.12e-6));
    CHECK(r.mean_batch == 32.0);
}

TEST_CASE("a steady decode ends at the horizon") {
    // Steps of 53.12 us as above: one of them ends within 100 us, two within exactly twice their time, none
    // in 1 ps.
    const SteadyWorkload workload{32, 1024, 24};
    const LinearServing serving = linear(Form::kBuffered, 8);
    const FakePricer pricer = affine();
    const RunResult one = serve_steady(workload, serving, pricer, time_from_us(100.0));
    CHECK(one.steps == 1);
    CHECK(one.busy == time_from_us(53.12));
    CHECK(one.simulated == time_from_us(100.0));
    CHECK(*one.output_tokens.p50 == 1.0);
    CHECK(serve_steady(workload, serving, pricer, time_from_us(106.24)).steps == 2);
    const RunResult none = serve_steady(workload, serving, pricer, Time(1));
    CHECK(none.steps == 0);
    CHECK_FALSE(none.tpot_ms.mean);
    CHECK_FALSE(none.itl_ms.mean);
    const RunResult all = serve_steady(workload, serving, pricer, time_from_us(1e6));
    CHECK(all.steps == 24);
    CHECK(all.simulated == all.busy);
}

TEST_CASE("over whole cycles any batch has the mean of the cycle") {
    for (const int m : {2, 3, 16, 24}) {
        for (const std::int64_t batch : {1, 5, 8, 100}) {
            const FakePricer pricer = affine();
            const RunResult r = serve_steady({batch, 64, 3 * m}, linear(Form::kBuffered, m), pricer);
            std::int64_t records = 0;
            for (const StepShape& shape : pricer.shapes()) records += shape[Form::kBuffered].buffered_tokens;
            CHECK(records == batch * 3 * m * (m - 1) / 2);
            CHECK(r.flushes == batch * 3);
            CHECK(r.linear_tokens == batch * 3 * m);
        }
    }
}

TEST_CASE("phases are spread over the cycle: flushes of a step differ by at most one") {
    for (const std::int64_t batch : {1, 7, 8, 33}) {
        const FakePricer pricer = affine();
        serve_steady({batch, 64, 16}, linear(Form::kBuffered, 16), pricer);
        for (const StepShape& shape : pricer.shapes()) {
            const std::int64_t flushes = shape[Form::kBuffered].flushes;
            CHECK(flushes >= batch / 16);
            CHECK(flushes <= (batch + 15) / 16);
        }
        // Row i starts with floor(16 i / batch) records.
        std::int64_t records = 0;
        for (std::int64_t i = 0; i < batch; ++i) records += 16 * i / batch;
        CHECK(pricer.shapes().front()[Form::kBuffered].buffered_tokens == records);
    }
}

LinearServing with_policy(std::string policy, int m, int ring = 0) {
    LinearServing serving = linear(Form::kBuffered, m);
    serving.flush.policy = std::move(policy);
    serving.ring = ring;
    return serving;
}

TEST_CASE("aligned flushes make one slow step per cycle, staggered ones equal steps of the same mean") {
    // Step t of an aligned cycle: 32 us + 32 t records x 10 ns, and in the last 32 flushes x 5 us. The median
    // lies between t = 3 and t = 4. Staggered: 53.12 us as above, which is the mean of both.
    const SteadyWorkload workload{32, 1024, 24};
    const RunResult aligned = serve_steady(workload, with_policy("aligned", 8), affine());
    CHECK(*aligned.itl_ms.p50 == Approx(0.03312).epsilon(0.01));
    CHECK(*aligned.itl_ms.p99 == Approx(0.19424).epsilon(0.01));
    CHECK(*aligned.itl_ms.mean == Approx(0.05312));
    CHECK(aligned.flushes == 24 * 4);
    const RunResult staggered = serve_steady(workload, with_policy("staggered", 8), affine());
    CHECK(*staggered.itl_ms.p50 == Approx(0.05312).epsilon(0.01));
    CHECK(*staggered.itl_ms.p99 == Approx(0.05312).epsilon(0.01));
    CHECK(*staggered.itl_ms.mean == Approx(0.05312));
}

TEST_CASE("whatever the policy, a cycle flushes every row once") {
    for (const FlushPolicyEntry& policy : flush_policies()) {
        for (const std::int64_t batch : {1, 6, 33}) {
            INFO(policy.name << ", batch " << batch);
            const FakePricer pricer = affine();
            const RunResult r =
                serve_steady({batch, 64, 24}, with_policy(std::string(policy.name), 8, 16), pricer);
            CHECK(r.flushes == 3 * batch);
            CHECK(r.linear_tokens == 24 * batch);
            std::int64_t folded = 0;
            for (const StepShape& shape : pricer.shapes()) folded += shape[Form::kBuffered].flushed_tokens;
            CHECK(folded == 24 * batch);
        }
    }
}

TEST_CASE("a deferred policy that may flush too few keeps every ring full") {
    // 32 rows, one flush per step: each would come every 32 steps, but rings of 12 flush every 12th.
    LinearServing serving = with_policy("deferred", 8, 12);
    serving.flush.most_per_step = 1;
    const RunResult r = serve_steady({32, 64, 120}, serving, affine());
    CHECK(r.flushes >= 120 * 32 / 12);
    CHECK(r.flushes <= 120 * 32 / 12 + 32);
}

TEST_CASE("the form that is faster for the batch is served") {
    // Buffered: 10 us and 1 us per row; recurrent: 2 us per row.
    const FakePricer pricer([](const StepShape& shape) {
        const LinearWork& buffered = shape[Form::kBuffered];
        return Time((buffered.sequences > 0 ? 10'000'000 : 0) + 1'000'000 * buffered.sequences +
                    2'000'000 * shape[Form::kRecurrent].sequences);
    });
    LinearServing serving = linear(Form::kBuffered, 8);
    serving.choose_form = true;
    CHECK(*serve_steady({5, 64, 8}, serving, pricer).tpot_ms.mean == Approx(0.010));
    CHECK(*serve_steady({20, 64, 8}, serving, pricer).tpot_ms.mean == Approx(0.030));
}

TEST_CASE("a predicted step is the mean of the steady cycle") {
    const FakePricer pricer = affine();
    const PricedLengths times(pricer);
    // 12 rows, m = 8: 12 us + 42 records x 10 ns + 1.5 flushes x 5 us = 19.92 us
    CHECK(times.step_time(8, 12) == time_from_us(19.92));
    CHECK(times.step_time(8, 12) == time_from_us(19.92));
    CHECK(pricer.shapes().size() == 2);  // one and two flushes; asked for once
    // Half a record is rounded off where rows (m - 1) is odd.
    for (const std::int64_t batch : {1, 7, 12, 100}) {
        const RunResult r = serve_steady({batch, 0, 32}, with_policy("staggered", 8), affine());
        CHECK(*r.tpot_ms.mean == Approx(to_ms(times.step_time(8, batch))).epsilon(5e-3));
    }
}

TEST_CASE("recurrent, and a buffer of one token") {
    for (const LinearServing& serving : {linear(Form::kRecurrent, 16), linear(Form::kBuffered, 1)}) {
        const FakePricer pricer([](const StepShape&) { return Time(1000); });
        const RunResult r = serve_steady({4, 100, 10}, serving, pricer);
        CHECK(pricer.shapes().front()[Form::kRecurrent].sequences == 4);
        CHECK(pricer.shapes().front()[Form::kBuffered].sequences == 0);
        CHECK(r.flushes == 0);
        CHECK(r.steps == 10);
    }
}

TEST_CASE("nothing arrives and nothing completes") {
    const FakePricer pricer([](const StepShape&) { return Time(1000); });
    const RunResult r = serve_steady({4, 100, 10}, linear(Form::kRecurrent, 1), pricer);
    CHECK(r.requests.read == 4);
    CHECK(r.requests.unfinished == 4);
    CHECK(r.requests.completed == 0);
    CHECK(r.generated_tokens == 40);
    CHECK(*r.prompt_tokens.p50 == 100.0);
    CHECK(*r.output_tokens.p50 == 10.0);
    CHECK_FALSE((r.ttft_ms.mean || r.e2e_ms.mean || r.queue_ms.mean));
}

}  // namespace
}  // namespace kvsim
