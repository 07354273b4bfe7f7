// From an experiment to what the commands need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/config/experiment.hpp"
#include "sim/cost/step_cost.hpp"
#include "sim/memory/capacity.hpp"

namespace kvsim {

// Prices steps with the fits in the experiment's profile folder, and what they lack on the roofline. Throws
// ConfigError when the folder is not there though it was named, or a fit cannot be read or claims the
// impossible.
StepCost make_step_cost(const Experiment& experiment);

// KV entries that a request of the experiment holds when it ends: the context of a steady workload and
// the token of its step, else the mean of prompt + output over all arrivals, rounded up.
std::int64_t mean_tokens_per_request(const Experiment& experiment);

double gib(Bytes bytes);

// Why nothing fits where Limit::kWeights binds: the weights, and the pool or what the engine may use.
std::string weights_misfit(const Experiment& experiment, const Capacity& capacity);

// "", or " (one rank of tp 4, ep 4 by all_to_all)": whose step or memory a table shows.
std::string ranks(const Parallelism& parallelism);

Capacity solve_capacity(const Experiment& experiment, std::int64_t tokens_per_request);

}  // namespace kvsim
