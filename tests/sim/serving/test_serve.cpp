// Scheduling and metrics on scenarios that are worked out by hand, and the whole Azure trace.
#include <cstdio>
#include <filesystem>

#include "sim/workload/workload.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr Time kMs(1'000'000'000);

ReplicaSpec wide_limits() {
    ReplicaSpec spec;
    spec.max_running = 100;
    spec.step_tokens = 1000;
    spec.pool = split_pool(100, 100'000);
    return spec;
}

FakePricer constant_step() {
    return FakePricer([](const StepShape&) { return kMs; });
}

LinearServing recurrent() {
    return {Form::kRecurrent, 1, StateFormat::kFp32};
}
LinearServing buffered(int m) {
    return {Form::kBuffered, m, StateFormat::kFp32};
}

RunResult run(std::vector<Arrival> arrivals, const ReplicaSpec& replica, const LinearServing& linear,
              const StepPricer& pricer, std::optional<Time> horizon = std::nullopt) {
    return serve_list(std::move(arrivals), serve_spec(replica, linear, horizon), pricer);
}

// The finished request with this prompt: tests give each its own.
FinishedRequest of_prompt(const RunResult& result, std::uint32_t prompt_tokens) {
    for (const FinishedRequest& r : result.finished) {
        if (r.prompt_tokens == prompt_tokens) return r;
    }
    FAIL("no request with a prompt of " << prompt_tokens);
    return {};
}
Time admitted(const FinishedRequest& r) {
    return r.arrived + r.queue;
}
Time ended(const FinishedRequest& r) {
    return r.arrived + r.e2e;
}

void check_prefill(const StepShape& shape, const PrefillShape& expected, std::int64_t logit_rows) {
    CHECK(shape.prefill.sequences == expected.sequences);
    CHECK(shape.prefill.new_tokens == expected.new_tokens);
    CHECK(shape.prefill.cached_tokens == expected.cached_tokens);
    CHECK(shape.prefill.query_key_pairs == expected.query_key_pairs);
    CHECK(shape.logit_rows == logit_rows);
    CHECK(shape.decode.sequences == 0);
    CHECK(shape.tokens() == expected.new_tokens);
}

void check_decode(const StepShape& shape, Form form, const LinearWork& work,
                  const DecodeAttentionShape& attention) {
    CHECK(shape[form].sequences == work.sequences);
    CHECK(shape[form].new_tokens == work.new_tokens);
    CHECK(shape[form].buffered_tokens == work.buffered_tokens);
    CHECK(shape[form].flushes == work.flushes);
    CHECK(shape[form].flushed_tokens == work.flushed_tokens);
    CHECK(shape.decode.sequences == attention.sequences);
    CHECK(shape.decode.context_sum == attention.context_sum);
    CHECK(shape.decode.context_max == attention.context_max);
    CHECK(shape.logit_rows == work.sequences);
    CHECK(shape.prefill.sequences == 0);
    CHECK(shape.tokens() == work.new_tokens);
}

TEST_CASE("shapes of two prompts in chunks of four, then of their decode") {
    // Prompts of 5 and 3 tokens, answers of 3 and 2, all at time zero.
    ReplicaSpec limits = wide_limits();
    limits.step_tokens = 4;
    const FakePricer pricer = constant_step();
    const RunResult result = run({{Time(), 5, 3}, {Time(), 3, 2}}, limits, buffered(2), pricer);
    const std::vector<StepShape>& shapes = pricer.shapes();
    REQUIRE(shapes.size() == 4);
    check_prefill(shapes[0], {1, 4, 0, 1 + 2 + 3 + 4}, 0);  // first chunk of the first prompt
    check_prefill(shapes[1], {2, 4, 4, 5 + (1 + 2 + 3)},
                  2);  // its last token after 4 cached ones; all of the second
    check_decode(shapes[2], Form::kBuffered, {2, 2, 0, 0, 0}, {2, 5 + 3, 5});
    check_decode(shapes[3], Form::kBuffered, {1, 1, 1, 1, 2},
                 {1, 6, 6});  // second one done; the first flushes
    CHECK(result.steps == 4);
    CHECK(result.flushes == 1);
    CHECK(result.generated_tokens == 5);
    CHECK(result.linear_tokens == 3);  // first tokens come from prefill
    CHECK(result.mean_batch == Approx((1.0 + 2.0 + 2.0 + 1.0) / 4.0));
}

TEST_CASE("the recurrent form has neither buffer nor flush") {
    const FakePricer pricer = constant_step();
    const RunResult result = run({{Time(), 5, 4}}, wide_limits(), recurrent(), pricer);
    REQUIRE(pricer.shapes().size() == 4);
    for (int step = 1; step <= 3; ++step) {
        check_decode(pricer.shapes()[static_cast<std::size_t>(step)], Form::kRecurrent, {1, 1, 0, 0, 0},
                     {1, 4 + step, 4 + step});
    }
    CHECK(result.flushes == 0);
}

TEST_CASE("latencies of a request that waits") {
    // One at a time, 1 ms per step. A: arrives at 0, prefill 0-1, decode 1-2, 2-3 (3 tokens). B: arrives at
    // 0.5 ms, is admitted at 3, first token at 4, second at 5. C: one token, arrives at 0.5, admitted at 5,
    // done at 6.
    ReplicaSpec limits = wide_limits();
    limits.max_running = 1;
    const Time half(500'000'000);
    const FakePricer pricer = constant_step();
    const RunResult r = run({{Time(), 10, 3}, {half, 10, 2}, {half, 10, 1}}, limits, recurrent(), pricer);
    CHECK(r.requests.completed == 3);
    CHECK(r.queue_ms.count == 3);
    CHECK(*r.queue_ms.mean == Approx((0.0 + 2.5 + 4.5) / 3.0));
    CHECK(*r.ttft_ms.mean == Approx((1.0 + 3.5 + 5.5) / 3.0));  // queue included
    CHECK(*r.e2e_ms.mean == Approx((3.0 + 4.5 + 5.5) / 3.0));
    CHECK(r.tpot_ms.count == 2);  // a one-token answer has none
    CHECK(*r.tpot_ms.mean == Approx(1.0));
    CHECK(r.one_token_outputs == 1);
    CHECK(r.itl_ms.count == 3);
    CHECK(r.simulated == Time(6 * kMs.value()));
    CHECK(r.busy == r.simulated);
    CHECK(r.output_tokens_per_s == Approx(6.0 / 6e-3));
    CHECK(r.requests_per_s == Approx(3.0 / 6e-3));
}

TEST_CASE("prefill goes first, and its interference is in the gaps") {
    // A decodes from 1 ms on; B arrives at 1.5 ms: the step at 2 ms is B's prefill, so A's tokens at 2 and 4
    // ms are 2 ms apart, and so is nothing of B's: first token at 3, second at 4.
    const FakePricer pricer = constant_step();
    const RunResult r =
        run({{Time(), 10, 4}, {Time(1'500'000'000), 10, 2}}, wide_limits(), recurrent(), pricer);
    CHECK(r.itl_ms.count == 4);  // A: 1, 2, 1; B: 1
    CHECK(*r.itl_ms.mean == Approx(5.0 / 4.0));
    CHECK(*r.itl_ms.p99 == Approx(1.0 + 0.97 * 1.0));  // rank 0.99 x 3 = 2.97 of 1, 1, 1, 2
}

TEST_CASE("an arrival at the very end of a step is seen by the next one") {
    const FakePricer pricer = constant_step();
    const RunResult r = run({{Time(), 10, 1}, {kMs, 11, 1}}, wide_limits(), recurrent(), pricer);
    CHECK(admitted(of_prompt(r, 11)) == kMs);
    CHECK(pricer.shapes().size() == 2);
}

TEST_CASE("arrivals at one instant share a prefill step") {
    const FakePricer pricer = constant_step();
    const RunResult r = run({{kMs, 10, 1}, {kMs, 20, 1}, {kMs, 30, 1}}, wide_limits(), recurrent(), pricer);
    CHECK(r.steps == 1);
    REQUIRE(pricer.shapes().size() == 1);
    CHECK(pricer.shapes()[0].prefill.sequences == 3);
    CHECK(r.busy == kMs);
    CHECK(r.simulated == kMs + kMs);
}

TEST_CASE("memory frees before the next admission, and the queue is not overtaken") {
    // 20 tokens of KV cache: A (10 + 2) runs; B (11 + 5) must wait for it, and C (2 + 2), which would fit,
    // for B.
    ReplicaSpec limits = wide_limits();
    limits.pool = split_pool(100, 20);
    const FakePricer pricer = constant_step();
    const RunResult r = run({{Time(), 10, 2}, {Time(), 11, 5}, {Time(), 2, 2}}, limits, recurrent(), pricer);
    CHECK(ended(of_prompt(r, 10)) == kMs + kMs);
    CHECK(admitted(of_prompt(r, 11)) == kMs + kMs);
    CHECK(admitted(of_prompt(r, 2)) == kMs + kMs);
}

TEST_CASE("state slots bound admission: q slots per request") {
    ReplicaSpec limits = wide_limits();
    limits.pool.slots = 7;
    limits.pool.slots_per_request = 3;  // two requests fit
    const FakePricer pricer = constant_step();
    const RunResult r = run({{Time(), 1, 2}, {Time(), 2, 2}, {Time(), 3, 2}}, limits, recurrent(), pricer);
    CHECK(admitted(of_prompt(r, 1)) == Time());
    CHECK(admitted(of_prompt(r, 2)) == Time());
    CHECK(admitted(of_prompt(r, 3)) == ended(of_prompt(r, 1)));
}

TEST_CASE("a request that can never fit is rejected at once, with the limit") {
    ReplicaSpec limits = wide_limits();
    limits.pool = split_pool(100, 20);
    const FakePricer pricer = constant_step();
    const RunResult r = run({{Time(), 15, 6}, {Time(), 15, 5}}, limits, recurrent(), pricer);
    CHECK(r.requests.rejected == 1);
    CHECK(r.rejected_by.kv_tokens == 1);
    CHECK(r.requests.completed == 1);

    limits.pool.slots = 1;
    limits.pool.slots_per_request = 2;
    const RunResult none = run({{Time(), 15, 6}, {kMs, 15, 5}}, limits, recurrent(), pricer);
    CHECK(none.requests.rejected == 2);
    CHECK(none.rejected_by.state_slots == 2);
    CHECK(none.steps == 0);  // and a result all the same
    CHECK_FALSE(none.ttft_ms.mean);
    CHECK(none.prompt_tokens.count == 2);
    CHECK(none.simulated == kMs);
}

TEST_CASE("the horizon cuts a run, and what is left is counted") {
    // Completed at 2 ms: A. At 3.5 ms: B is decoding, C has not arrived. The step from 3 to 4 ms does not
    // count.
    const FakePricer pricer = constant_step();
    const RunResult r = run({{Time(), 10, 2}, {Time(2 * kMs.value()), 10, 5}, {Time(9 * kMs.value()), 10, 1}},
                            wide_limits(), recurrent(), pricer, Time(3'500'000'000));
    CHECK(r.requests.read == 3);
    CHECK(r.requests.completed == 1);
    CHECK(r.requests.unfinished == 2);
    CHECK(r.simulated == Time(3'500'000'000));
    CHECK(r.steps == 3);
    CHECK(r.generated_tokens == 3);
    CHECK(r.ttft_ms.count == 1);
}

TEST_CASE("a horizon after the last request changes nothing") {
    const FakePricer pricer = constant_step();
    const RunResult r = run({{Time(), 10, 2}}, wide_limits(), recurrent(), pricer, Time(900 * kMs.value()));
    CHECK(r.simulated == kMs + kMs);
    CHECK(r.requests.unfinished == 0);
}

TEST_CASE("rows that were all dropped still give a result") {
    ListSource source({}, {4, 4, 0, 0});  // read, dropped
    const RunResult r = serve(serve_spec(wide_limits(), recurrent()), source, constant_step());
    CHECK(r.requests.read == 4);
    CHECK(r.requests.dropped == 4);
    CHECK(r.steps == 0);
    CHECK(r.simulated == Time());
}

TEST_CASE("the whole Azure conversation trace is served and accounted for") {
    const std::string path = KVSIM_SOURCE_DIR "/../shared/traces/azure2023/AzureLLMInferenceTrace_conv.csv";
    if (!std::filesystem::exists(path)) {
        std::fprintf(stderr, "SKIPPED: no trace at %s\n", path.c_str());
        return;
    }
    // 5 ms for any decode step, 20 us per prompt token.
    const FakePricer pricer([](const StepShape& shape) {
        return shape.prefill.sequences > 0
                   ? time_from_us(20.0 * static_cast<double>(shape.prefill.new_tokens))
                   : time_from_us(5000.0);
    });
    ReplicaSpec limits = wide_limits();
    limits.max_running = 256;
    limits.pool = split_pool(256, 1'000'000);
    limits.step_tokens = 8192;
    const ArrivalList list = read_trace(path);
    const RunResult r = run(list.arrivals, limits, buffered(16), pricer);
    CHECK(r.requests.read == 19'366);
    CHECK(r.requests.completed == 19'366);
    std::int64_t output = 0;
    std::int64_t prompt = 0;
    for (const Arrival& a : list.arrivals) {
        output += a.output_tokens;
        prompt += a.prompt_tokens;
    }
    CHECK(r.generated_tokens == output);
    CHECK(r.linear_tokens == output - 19'366);
    CHECK(*r.prompt_tokens.p50 == 1020.0);
    CHECK(*r.output_tokens.p50 == 129.0);
    // Every request flushes once per 16 decoded tokens.
    std::int64_t flushes = 0;
    for (const Arrival& a : list.arrivals) flushes += (a.output_tokens - 1) / 16;
    CHECK(r.flushes == flushes);
    std::int64_t prefilled = 0;
    for (const StepShape& shape : pricer.shapes()) prefilled += shape.prefill.new_tokens;
    CHECK(prefilled == prompt);
}

}  // namespace
}  // namespace kvsim
