#include "sim/cli/run_experiment.hpp"

#include <fmt/format.h>

#include <string_view>
#include <variant>

#include "sim/base/error.hpp"
#include "sim/cli/setup.hpp"
#include "sim/serving/simulate.hpp"

namespace kvsim {
namespace {

// An outcome without a result when the experiment cannot run at all. Single requests that are too long are
// the run's business.
std::optional<RunOutcome> misfit(const Experiment& e) {
    const auto* steady = std::get_if<SteadyWorkload>(&e.workload);
    const std::int64_t batch = steady ? steady->batch : 1;
    const std::int64_t tokens = steady ? mean_tokens_per_request(e) : 1;
    const Capacity capacity = solve_capacity(e, tokens);
    if (capacity.requests >= batch) return std::nullopt;
    const std::string_view limit = kLimitNames[static_cast<std::size_t>(capacity.limit)];
    if (capacity.limit == Limit::kWeights) {
        return RunOutcome{RunStatus::kInfeasible, weights_misfit(e, capacity),
                          e.engine.memory.pool ? "engine.memory.pool" : "model", std::nullopt};
    }
    if (!steady) {
        return RunOutcome{RunStatus::kInfeasible,
                          fmt::format("no request fits {} beside {:.1f} GiB of weights, limited by {}",
                                      e.device.name, gib(capacity.weights), limit),
                          "model", std::nullopt};
    }
    return RunOutcome{RunStatus::kInfeasible,
                      fmt::format("a batch of {} does not fit {}: {} requests of {} tokens do, limited by {}",
                                  batch, e.device.name, capacity.requests, tokens, limit),
                      "workload.batch", std::nullopt};
}

}  // namespace

RunOutcome run_experiment(const Experiment& experiment) {
    try {
        if (std::optional<RunOutcome> outcome = misfit(experiment)) return *std::move(outcome);
        return {RunStatus::kOk, "", "", simulate(experiment, make_step_cost(experiment))};
    } catch (const ConfigError&) {
        throw;                               // the user's to mend
    } catch (const std::exception& error) {  // a broken invariant, no memory
        return {RunStatus::kFailed, error.what(), "", std::nullopt};
    }
}

}  // namespace kvsim
