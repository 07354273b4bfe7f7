#include "sim/cli/setup.hpp"

#include <variant>

#include "sim/cost/fit.hpp"

namespace kvsim {
namespace {

std::int64_t mean_tokens(const ArrivalList& list) {
    std::int64_t sum = 0;
    for (const Arrival& arrival : list.arrivals) sum += arrival.prompt_tokens + arrival.output_tokens;
    const auto count = static_cast<std::int64_t>(list.arrivals.size());
    return count == 0 ? 1 : (sum + count - 1) / count;
}

}  // namespace

StepCost make_step_cost(const Experiment& experiment) {
    return StepCost(experiment.model, experiment.device, load_fit(experiment.profile_dir),
                    experiment.linear.state);
}

std::int64_t mean_tokens_per_request(const Experiment& experiment) {
    struct Visitor {
        std::uint64_t seed;
        std::int64_t operator()(const SteadyWorkload& w) const {
            return w.context + 1;  // and the token of the step
        }
        std::int64_t operator()(const SyntheticWorkload& w) const { return mean_tokens(generate(w, seed)); }
        std::int64_t operator()(const TraceWorkload& w) const { return mean_tokens(read_trace(w.path)); }
    };
    return std::visit(Visitor{experiment.seed}, experiment.workload);
}

Capacity solve_capacity(const Experiment& experiment, std::int64_t tokens_per_request) {
    return solve_capacity(experiment.model, experiment.device, experiment.engine, experiment.linear,
                          tokens_per_request);
}

}  // namespace kvsim
