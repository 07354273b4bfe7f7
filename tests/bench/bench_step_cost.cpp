// What it takes to price one step of Qwen3.5-35B-A3B on an H200 under SGLang: by kind of step, with the plans
// and tables of a run in progress; and, for comparison, by the walk of the graph.
#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "sim/cli/setup.hpp"
#include "sim/config/experiment.hpp"
#include "sim/cost/compiled_cost.hpp"

namespace kvsim {
namespace {

const StepCost& step_cost() {
    static const StepCost cost =
        make_step_cost(load_experiment(KVSIM_SOURCE_DIR "/configs/experiments/azure_conv.yaml"));
    return cost;
}

constexpr std::int64_t kBatch = 48;
constexpr std::int64_t kLength = 16;

// Successive steps of rows whose phases are spread evenly: three flush in each.
std::vector<StepShape> decode_steps(Form form, std::int64_t tokens_per_row, int drafts) {
    std::vector<StepShape> steps;
    for (std::int64_t i = 0; i < 256; ++i) {
        StepShape s;
        s[form] = {kBatch, kBatch * tokens_per_row, 0, 0, 0};
        if (form == Form::kBuffered || form == Form::kVerifyBuffered) {
            s[form].buffered_tokens = kBatch * (kLength - 1) / 2 + i % 3;
            s[form].flushes = kBatch / kLength;
            s[form].flushed_tokens = s[form].flushes * kLength;
        }
        s.decode = {kBatch, kBatch * (900 + i), 2'000 + i};
        s.logit_rows = kBatch * tokens_per_row;
        s.drafts = drafts;
        steps.push_back(s);
    }
    return steps;
}

// Chunks of different lengths, `different` of them.
std::vector<StepShape> prefill_steps(std::int64_t different, bool decodes) {
    std::vector<StepShape> steps;
    for (std::int64_t i = 0; i < different; ++i) {
        StepShape s = decodes ? decode_steps(Form::kBuffered, 1, 0).front() : StepShape{};
        const std::int64_t n = 1 + i * 7919 % 8'000;
        s.prefill = {1, n, 0, n * (n + 1) / 2};
        ++s.logit_rows;
        steps.push_back(s);
    }
    return steps;
}

void run(benchmark::State& state, const std::vector<StepShape>& steps) {
    CompiledStepCost cost(step_cost());
    for (const StepShape& s : steps) benchmark::DoNotOptimize(cost.price(s));
    std::size_t i = 0;
    for (auto _ : state) {
        benchmark::DoNotOptimize(cost.price(steps[i]));
        if (++i == steps.size()) i = 0;
    }
}

void walk(benchmark::State& state, const std::vector<StepShape>& steps) {
    std::size_t i = 0;
    for (auto _ : state) {
        benchmark::DoNotOptimize(step_cost().price(steps[i]));
        if (++i == steps.size()) i = 0;
    }
}

// Numbers of tokens that no step had before: chunk by chunk, all different.
void new_tokens(benchmark::State& state) {
    const std::vector<StepShape> steps = prefill_steps(8'000, false);
    std::size_t i = steps.size();
    std::optional<CompiledStepCost> cost;
    for (auto _ : state) {
        if (i == steps.size()) {
            state.PauseTiming();
            cost.emplace(step_cost());
            cost->price(steps[0]);
            i = 1;
            state.ResumeTiming();
        }
        benchmark::DoNotOptimize(cost->price(steps[i++]));
    }
}

BENCHMARK_CAPTURE(run, decode_recurrent, decode_steps(Form::kRecurrent, 1, 0));
BENCHMARK_CAPTURE(run, decode_buffered, decode_steps(Form::kBuffered, 1, 0));
BENCHMARK_CAPTURE(run, verify_stored_3_drafts, decode_steps(Form::kVerifyStored, 4, 3));
BENCHMARK_CAPTURE(run, verify_buffered_3_drafts, decode_steps(Form::kVerifyBuffered, 4, 3));
BENCHMARK_CAPTURE(run, prefill, prefill_steps(500, false));
BENCHMARK_CAPTURE(run, prefill_and_decode, prefill_steps(500, true));
BENCHMARK(new_tokens)->Name("prefill_of_new_lengths");
BENCHMARK_CAPTURE(walk, graph_decode_buffered, decode_steps(Form::kBuffered, 1, 0));
BENCHMARK_CAPTURE(walk, graph_prefill, prefill_steps(500, false));

}  // namespace
}  // namespace kvsim
