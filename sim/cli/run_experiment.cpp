#include "sim/cli/run_experiment.hpp"

#include <fmt/format.h>

#include <variant>

#include "sim/base/check.hpp"
#include "sim/cli/setup.hpp"
#include "sim/serving/simulate.hpp"

namespace kvsim {
namespace {

// Why the experiment cannot run at all; empty when it can. Single requests that are too long are the run's
// business.
std::string misfit(const Experiment& experiment) {
    const auto* steady = std::get_if<SteadyWorkload>(&experiment.workload);
    const std::int64_t needed = steady ? steady->batch : 1;
    const Capacity capacity = solve_capacity(experiment, steady ? mean_tokens_per_request(experiment) : 1);
    if (capacity.requests >= needed) return {};
    return fmt::format("{} does not fit {}: {} of {} requests, limited by {}", experiment.model.name,
                       experiment.device.name, capacity.requests, needed,
                       kLimitNames[static_cast<std::size_t>(capacity.limit)]);
}

}  // namespace

RunOutcome run_experiment(const Experiment& experiment) {
    if (std::string reason = misfit(experiment); !reason.empty()) {
        return {RunStatus::kInfeasible, std::move(reason), std::nullopt};
    }
    try {
        return {RunStatus::kOk, "", simulate(experiment, make_step_cost(experiment))};
    } catch (const InvariantError& error) {
        return {RunStatus::kFailed, error.what(), std::nullopt};
    }
}

}  // namespace kvsim
