#include "sim/serving/simulate.hpp"

#include <fmt/format.h>

#include <memory>
#include <variant>

#include "sim/base/error.hpp"
#include "sim/cost/compiled_cost.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/memory/pool.hpp"
#include "sim/memory/prefix_cache.hpp"
#include "sim/policies/form.hpp"
#include "sim/results/collector.hpp"
#include "sim/serving/cohort_rows.hpp"
#include "sim/serving/length_times.hpp"
#include "sim/serving/sampled_rows.hpp"
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

SampledRowsParts sampled_rows(const Experiment& experiment, std::int64_t page_tokens,
                              const StepPricer& pricer) {
    SampledRowsParts parts;
    parts.speculation = experiment.serving.speculation;
    parts.linear = experiment.linear;
    parts.draft_records = experiment.engine.memory.draft_records;
    parts.page_tokens = static_cast<int>(page_tokens);
    parts.seed = experiment.seed;
    parts.pricer = &pricer;
    return parts;
}

RunResult run_steady(const Experiment& experiment, const SteadyWorkload& workload, const StepPricer& pricer) {
    const Capacity capacity = capacity_for(experiment, workload.context + 1);
    if (workload.batch <= capacity.requests && experiment.linear.drafts > 0) {
        return serve_steady_speculation(workload, sampled_rows(experiment, 1, pricer), experiment.horizon);
    }
    if (workload.batch <= capacity.requests)
        return serve_steady(workload, experiment.linear, pricer, experiment.horizon);
    Collector collector;  // the batch cannot exist: all of it is refused
    for (std::int64_t row = 0; row < workload.batch; ++row) {
        collector.arrived(Time(), workload.context, workload.steps);
        collector.rejected(capacity.limit);
    }
    return collector.take({Time(), workload.batch});
}

std::unique_ptr<DecodeRows> make_rows(const Experiment& experiment, std::int64_t page_tokens,
                                      const StepPricer& pricer, const LengthTimes& lengths) {
    const std::optional<PrefixCacheSpec>& cache = experiment.engine.prefix_cache;
    const std::int64_t interval = cache ? snapshot_interval(*cache, page_tokens) : 0;
    if (experiment.linear.drafts == 0) {
        return std::make_unique<CohortRows>(make_decode_form(experiment.linear, &lengths), page_tokens,
                                            interval);
    }
    SampledRowsParts parts = sampled_rows(experiment, page_tokens, pricer);
    parts.snapshot_interval = interval;
    return make_sampled_rows(parts);
}

ServeSpec serve_spec(const Experiment& experiment, const StepPricer& pricer, const LengthTimes& lengths) {
    // What a pool holds does not depend on the length of requests.
    const Capacity capacity = capacity_for(experiment, 1);
    ServeSpec spec;
    spec.replica.max_running = capacity.max_running;
    spec.replica.step_tokens = experiment.engine.chunked_prefill_tokens;
    spec.replica.drafts = experiment.linear.drafts;
    spec.replica.pool = pool_size(capacity, experiment.engine.memory.pools);
    spec.replica.scheduler = experiment.engine.scheduler;
    spec.replica.prefix_cache = experiment.engine.prefix_cache;
    spec.replicas = experiment.serving.replicas;
    spec.router = experiment.serving.router;
    spec.horizon = experiment.horizon;
    spec.make_rows = [&, page = spec.replica.pool.page_tokens] {
        return make_rows(experiment, page, pricer, lengths);
    };
    return spec;
}

RunResult run_arrivals(const Experiment& experiment, const StepPricer& pricer) {
    const ServingSpec& serving = experiment.serving;
    const std::unique_ptr<ArrivalSource> arrivals = make_arrivals(experiment.workload, experiment.seed);
    if (!serving.service) {
        const PricedLengths lengths(pricer);
        return serve(serve_spec(experiment, pricer, lengths), *arrivals, pricer,
                     Collector(serving.slo, serving.warmup));
    }
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
