// Runs one experiment: arrivals through the scheduler, steps priced by the cost model, metrics out.
#pragma once

#include "sim/config/experiment.hpp"
#include "sim/cost/step_cost.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {

// Deterministic: same experiment and binary, same result. Throws ConfigError when the model does not fit the
// device or the trace cannot be read; "a request does not fit" is counted as rejected.
RunResult simulate(const Experiment& experiment, const StepCost& cost);

}  // namespace kvsim
