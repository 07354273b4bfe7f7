#include "sim/serving/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "sim/base/error.hpp"
#include "sim/cost/compiled_cost.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/serving/serve.hpp"
#include "sim/serving/steady.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {
namespace {

class CostPricer final : public StepPricer {
  public:
    explicit CostPricer(const StepCost& cost) : cost_(cost) {}
    StepPrice price(const StepShape& shape) const override { return cost_.price(shape); }

  private:
    mutable CompiledStepCost cost_;  // makes its plans as steps come
};

// What fits beside the weights. Throws ConfigError when these alone do not fit: there is nothing to run then.
Capacity capacity_for(const Experiment& experiment, std::int64_t tokens_per_request) {
    const Capacity capacity =
        solve_capacity(rank_model(experiment.model, experiment.parallelism), experiment.device,
                       experiment.engine, experiment.linear, tokens_per_request);
    if (capacity.limit == Limit::kWeights) {
        throw_mistake(
            {}, "model",
            fmt::format("expected a model that fits the device, got {} with {} bytes of weights for {} with "
                        "{} bytes of memory, of which {} uses {:g} %",
                        experiment.model.name, capacity.weights.value(), experiment.device.name,
                        experiment.device.memory.value(), experiment.engine.name,
                        100.0 * experiment.engine.memory.fraction));
    }
    return capacity;
}

RunResult run_steady(const Experiment& experiment, const SteadyWorkload& workload, const StepPricer& pricer) {
    const Capacity capacity = capacity_for(experiment, workload.context + 1);
    if (workload.batch <= capacity.requests)
        return serve_steady(workload, experiment.linear, pricer, experiment.horizon);
    RunResult result;  // the batch cannot exist: all of it is refused
    result.requests.read = workload.batch;
    result.requests.rejected = workload.batch;
    result.rejected_by.state_slots = capacity.limit == Limit::kStateSlots ? workload.batch : 0;
    const bool pool = capacity.limit == Limit::kKvTokens || capacity.limit == Limit::kBlocks ||
                      capacity.limit == Limit::kBytes;
    result.rejected_by.kv_tokens = pool ? workload.batch : 0;
    result.rejected_by.max_running = capacity.limit == Limit::kMaxRunning ? workload.batch : 0;
    return result;
}

RunResult run_arrivals(const Experiment& experiment, const ArrivalList& list, const StepPricer& pricer) {
    std::int64_t longest = 1;
    for (const Arrival& a : list.arrivals) longest = std::max(longest, a.prompt_tokens + a.output_tokens);
    const Capacity capacity = capacity_for(experiment, longest);
    ReplicaLimits limits;
    limits.max_running = experiment.engine.max_running_requests;
    limits.state_slots = capacity.state_slots;
    limits.slots_per_request = capacity.slots_per_request;
    limits.kv_tokens = capacity.kv_tokens;
    limits.chunked_prefill_tokens = experiment.engine.chunked_prefill_tokens;
    return serve(list, limits, make_decode_form(experiment.linear), pricer, experiment.horizon).result;
}

}  // namespace

RunResult simulate(const Experiment& experiment, const StepCost& cost) {
    const CostPricer pricer(cost);
    if (const auto* steady = std::get_if<SteadyWorkload>(&experiment.workload)) {
        return run_steady(experiment, *steady, pricer);
    }
    if (const auto* trace = std::get_if<TraceWorkload>(&experiment.workload)) {
        return run_arrivals(experiment, read_trace(trace->path), pricer);
    }
    const auto& synthetic = std::get<SyntheticWorkload>(experiment.workload);
    return run_arrivals(experiment, generate(synthetic, experiment.seed), pricer);
}

}  // namespace kvsim
