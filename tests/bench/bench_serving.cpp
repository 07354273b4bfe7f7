// The serving loop alone: a price that costs nothing, arrivals drawn as they come. Rates are per second of
// one core: `steps` with few rows, `requests` with batches of more than 100.
#include <benchmark/benchmark.h>

#include <memory>

#include "sim/serving/cohort_rows.hpp"
#include "sim/serving/serve.hpp"
#include "sim/workload/arrivals.hpp"

namespace kvsim {
namespace {

class ConstantStep final : public StepPricer {
  public:
    explicit ConstantStep(Time time) {
        price_.time = time;
        price_.time_by_source[static_cast<std::size_t>(Source::kRoofline)] = time;
    }
    StepPrice price(const StepShape&) const override { return price_; }

  private:
    StepPrice price_;
};

SyntheticWorkload workload(std::int64_t requests, double rate, double prompt, double output) {
    SyntheticWorkload w;
    w.rate = Frequency(rate);
    w.requests = requests;
    w.prompt.kind = w.output.kind = LengthDistribution::Kind::kLogNormal;
    w.prompt.median = prompt;
    w.output.median = output;
    w.prompt.sigma = w.output.sigma = 1.0;
    w.prompt.max = 100'000;
    w.output.max = 10'000;
    return w;
}

ServeSpec engine(StepRule steps, AdmissionRule admission) {
    ServeSpec spec;
    spec.replica.max_running = 1024;
    spec.replica.step_tokens = 8192;
    spec.replica.pool.slots = 1024;
    spec.replica.pool.units = 1'000'000;
    spec.replica.pool.page_tokens = 16;
    spec.replica.scheduler.steps = steps;
    spec.replica.scheduler.admission = admission;
    spec.make_rows = [] {
        return std::make_unique<CohortRows>(make_decode_form({Form::kBuffered, 16, StateFormat::kFp32}), 16);
    };
    return spec;
}

void run(benchmark::State& state, const SyntheticWorkload& workload, const ServeSpec& spec) {
    const ConstantStep pricer(time_from_us(5000.0));
    std::int64_t steps = 0;
    std::int64_t requests = 0;
    double batch = 0.0;
    for (auto _ : state) {
        const auto arrivals = make_arrivals(workload, 1);
        const RunResult result = serve(spec, *arrivals, pricer);
        steps += result.steps;
        requests += result.requests.completed;
        batch = result.mean_batch;
    }
    state.counters["steps"] = benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsRate);
    state.counters["requests"] =
        benchmark::Counter(static_cast<double>(requests), benchmark::Counter::kIsRate);
    state.counters["batch"] = batch;
}

void few_rows(benchmark::State& state) {
    run(state, workload(20'000, 5.0, 1000.0, 130.0),
        engine(StepRule::kPrefillFirst, AdmissionRule::kDeclared));
}
BENCHMARK(few_rows)->Unit(benchmark::kMillisecond);

void many_rows(benchmark::State& state) {
    run(state, workload(100'000, 1000.0, 100.0, 30.0), engine(StepRule::kMixed, AdmissionRule::kPrompt));
}
BENCHMARK(many_rows)->Unit(benchmark::kMillisecond);

// Time per request must not depend on how many there are.
void long_run(benchmark::State& state) {
    run(state, workload(state.range(0), 1000.0, 100.0, 30.0),
        engine(StepRule::kMixed, AdmissionRule::kPrompt));
}
BENCHMARK(long_run)
    ->Arg(100'000)
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvsim
