#include "sim/serving/simulate.hpp"

#include <fmt/format.h>

#include <memory>
#include <variant>

#include "sim/base/error.hpp"
#include "sim/cost/compiled_cost.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/memory/pool.hpp"
#include "sim/policies/form.hpp"
#include "sim/results/collector.hpp"
#include "sim/serving/cohort_rows.hpp"
#include "sim/serving/serve.hpp"
#include "sim/serving/service.hpp"
#include "sim/serving/steady.hpp"
#include "sim/workload/arrivals.hpp"
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
    const Capacity capacity = solve_capacity(rank_model(experiment.model, experiment.parallelism),
                                             experiment.device, experiment.engine, experiment.linear,
                                             tokens_per_request, experiment.parallelism.attention_dp);
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

ServeSpec serve_spec(const Experiment& experiment) {
    // What a pool holds does not depend on the length of requests.
    const Capacity capacity = capacity_for(experiment, 1);
    ServeSpec spec;
    spec.replica.max_running = capacity.max_running;
    spec.replica.step_tokens = experiment.engine.chunked_prefill_tokens;
    spec.replica.drafts = experiment.linear.drafts;
    spec.replica.pool = pool_size(capacity, experiment.engine.memory.pools);
    spec.replica.scheduler = experiment.engine.scheduler;
    spec.replicas = experiment.serving.replicas;
    spec.router = experiment.serving.router;
    spec.horizon = experiment.horizon;
    spec.make_rows = [&experiment, page = spec.replica.pool.page_tokens] {
        return std::make_unique<CohortRows>(make_decode_form(experiment.linear), page);
    };
    return spec;
}

RunResult run_arrivals(const Experiment& experiment, const StepPricer& pricer) {
    const ServingSpec& serving = experiment.serving;
    const std::unique_ptr<ArrivalSource> arrivals = make_arrivals(experiment.workload, experiment.seed);
    if (!serving.service)
        return serve(serve_spec(experiment), *arrivals, pricer, Collector(serving.slo, serving.warmup));
    ServeSpec spec = service_spec(serving.replicas);
    spec.horizon = experiment.horizon;
    ServiceArrivals one_step_each(*arrivals);
    return serve(spec, one_step_each, ServicePricer(*serving.service, experiment.seed),
                 Collector(serving.slo, serving.warmup));
}

}  // namespace

RunResult simulate(const Experiment& experiment, const StepCost& cost) {
    const CostPricer pricer(cost);
    if (const auto* steady = std::get_if<SteadyWorkload>(&experiment.workload)) {
        return run_steady(experiment, *steady, pricer);
    }
    return run_arrivals(experiment, pricer);
}

}  // namespace kvsim
