// simulate(): the whole way from an experiment to its result, priced by the cost model on a made-up but sound
// profile.
#include <cstdio>
#include <filesystem>

#include "sim/base/error.hpp"
#include "sim/serving/simulate.hpp"
#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/models.hpp"

namespace kvsim {
namespace {

Experiment experiment(WorkloadSpec workload) {
    Experiment e;
    e.name = "test";
    e.model = testing::qwen35_35b_a3b();
    e.device.name = "gpu";
    e.device.memory = Bytes(143'771LL << 20);
    e.device.peak_bandwidth = Bandwidth(4.8e12);
    e.device.peak_bf16 = FlopRate(989.4e12);
    e.device.sm_count = 132;
    e.engine.name = "engine";
    e.engine.memory.fraction = 0.9;
    e.engine.memory.pools = SplitPools{.state_ratio = 0.9};
    e.engine.max_running_requests = 300;
    e.engine.chunked_prefill_tokens = 8192;
    e.linear = {Form::kBuffered, 16, StateFormat::kFp32};
    e.workload = std::move(workload);
    return e;
}

StepCost cost_of(const Experiment& e) {
    return StepCost({e.model,
                     {},
                     e.engine.steps,
                     e.linear.state,
                     FittedOperators(e.device),
                     {fit_profile(testing::synthetic_profile()), false}});
}

RunResult run(const Experiment& e) {
    return simulate(e, cost_of(e));
}

SyntheticWorkload conversations(std::int64_t requests) {
    SyntheticWorkload w;
    w.rate = Frequency(5.0);
    w.requests = requests;
    w.prompt.kind = LengthDistribution::Kind::kLogNormal;
    w.prompt.median = 1000.0;
    w.prompt.sigma = 1.0;
    w.output.value = 40;
    return w;
}

void check_sums(const RunResult& r) {
    CHECK(r.requests.read ==
          r.requests.completed + r.requests.rejected + r.requests.dropped + r.requests.unfinished);
    Time by_source;
    for (const Time t : r.time_by_source) by_source += t;
    CHECK(by_source == r.busy);
    CHECK(r.busy <= r.simulated);
    CHECK(r.linear_time < r.busy);
}

TEST_CASE("a steady step costs what the cost model asks for its shape") {
    // 32 rows in 16 phases: two at each fill, so 2 (0 + ... + 15) = 240 records are read and 2 rows flush in
    // every step.
    const Experiment e = experiment(SteadyWorkload{32, 1024, 48});
    StepShape shape;
    shape[Form::kBuffered] = {32, 32, 240, 2, 2 * 16};
    shape.decode = {32, 32 * 1024, 1024};
    shape.logit_rows = 32;
    const StepCost cost = cost_of(e);
    const StepPrice price = cost.price(shape);
    const RunResult r = simulate(e, cost);
    CHECK(r.busy == price.time * 48);
    CHECK(r.linear_time == price.linear_time * 48);
    CHECK(r.linear_time > Time());
    for (std::size_t i = 0; i < r.bytes.size(); ++i) CHECK(r.bytes[i] == price.bytes[i] * 48);
    CHECK(*r.itl_ms.p50 == Approx(to_ms(price.time)));
    check_sums(r);
}

TEST_CASE("a steady batch that does not fit is rejected as a whole, with the limit") {
    Experiment e = experiment(SteadyWorkload{301, 1, 10});
    const RunResult running = run(e);
    CHECK(running.requests.rejected == 301);
    CHECK(running.rejected_by.max_running == 301);
    CHECK(running.steps == 0);

    // 1 % of what the weights leave free is for states: far below 300 of 60 MiB.
    e.engine.memory.pools = SplitPools{.state_ratio = 0.01};
    e.workload = SteadyWorkload{200, 1, 10};
    CHECK(run(e).rejected_by.state_slots == 200);
}

TEST_CASE("weights that do not fit are the user's mistake") {
    Experiment e = experiment(conversations(10));
    e.device.memory = Bytes(48LL << 30);  // about 65 GiB of weights in bf16
    CHECK_THROWS_AS(run(e), ConfigError);
    CHECK_THROWS_WITH(run(e), ContainsSubstring("model: expected a model that fits the device"));
}

TEST_CASE("a form that cannot be served is the user's mistake") {
    Experiment e = experiment(conversations(10));
    e.linear.form = Form::kDirect;
    CHECK_THROWS_WITH(
        run(e), ContainsSubstring("linear.form: expected one of recurrent, buffered, auto, got direct"));
}

TEST_CASE("Poisson arrivals are served, priced and summed up") {
    const Experiment e = experiment(conversations(300));
    const RunResult r = run(e);
    CHECK(r.requests.completed == 300);
    CHECK(r.generated_tokens == 300 * 40);
    CHECK(r.flushes == 300 * (39 / 16));
    CHECK(r.ttft_ms.count == 300);
    CHECK(*r.ttft_ms.mean >= *r.queue_ms.mean);
    check_sums(r);

    const RunResult again = run(e);
    CHECK(again.simulated == r.simulated);
    CHECK(again.bytes == r.bytes);
    Experiment other = e;
    other.seed = 2;
    CHECK(run(other).simulated != r.simulated);
}

TEST_CASE("snapshots are taken, priced and flush what is buffered") {
    // 1000 tokens of prompt have a snapshot after 768; 39 more are decoded, one of which is the 1024th. In
    // the buffered form that one, the 24th, flushes the 8 since the 16th; the 40th would be next.
    SyntheticWorkload w = conversations(100);
    w.rate = Frequency(1.0);
    w.prompt.kind = LengthDistribution::Kind::kConstant;
    w.prompt.value = 1000;
    Experiment e = experiment(w);
    const RunResult without = run(e);
    e.engine.prefix_cache = PrefixCacheSpec{.snapshot_tokens = 256};
    const RunResult r = run(e);
    CHECK_FALSE(without.prefix_cache);
    REQUIRE(r.prefix_cache);
    CHECK(r.prefix_cache->asked_tokens == 100 * 1000);
    CHECK(r.prefix_cache->hit_tokens == 0);
    CHECK(r.prefix_cache->snapshots == 2 * 100);
    CHECK(r.flushes == 2 * 100);
    CHECK(r.generated_tokens == without.generated_tokens);
    // A copy reads and writes a state; a flush beside those that would have been writes one.
    const auto state = [](const RunResult& result, Owner owner) {
        return result.bytes[static_cast<std::size_t>(owner)].value();
    };
    CHECK(state(r, Owner::kStateRead) > state(without, Owner::kStateRead));
    CHECK(state(r, Owner::kStateWrite) > state(without, Owner::kStateWrite));
    CHECK(state(r, Owner::kBufferWrite) == state(without, Owner::kBufferWrite));
    CHECK(r.busy > without.busy);
    check_sums(r);
}

TEST_CASE("the longest request may need a share of the cache that no request has") {
    SyntheticWorkload w = conversations(20);
    w.prompt.kind = LengthDistribution::Kind::kConstant;
    w.prompt.value = 100'000'000;  // 2 TB of KV entries
    w.prompt.max = 1'000'000'000;
    const RunResult r = run(experiment(w));
    CHECK(r.requests.rejected == 20);
    CHECK(r.rejected_by.kv_tokens == 20);
}

TEST_CASE("buffering moves fewer state bytes than the recurrent form, for the same requests") {
    Experiment e = experiment(conversations(50));
    const RunResult buffered = run(e);
    e.linear.form = Form::kRecurrent;
    const RunResult recurrent = run(e);
    CHECK(recurrent.generated_tokens == buffered.generated_tokens);
    CHECK(*recurrent.prompt_tokens.mean == *buffered.prompt_tokens.mean);
    const auto write = static_cast<std::size_t>(Owner::kStateWrite);
    CHECK(buffered.bytes[write] < recurrent.bytes[write]);
    CHECK(recurrent.flushes == 0);
}

TEST_CASE("the Azure conversation trace, with the real cost model") {
    const std::string path = KVSIM_SOURCE_DIR "/../shared/traces/azure2023/AzureLLMInferenceTrace_conv.csv";
    if (!std::filesystem::exists(path)) {
        std::fprintf(stderr, "SKIPPED: no trace at %s\n", path.c_str());
        return;
    }
    const RunResult r = run(experiment(TraceWorkload{path}));
    CHECK(r.requests.read == 19'366);
    CHECK(r.requests.completed == 19'366);
    CHECK(*r.prompt_tokens.p50 == 1020.0);
    CHECK(*r.output_tokens.p50 == 129.0);
    check_sums(r);
}

}  // namespace
}  // namespace kvsim
