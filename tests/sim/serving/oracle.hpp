// A plain scheduler that follows every request in every step and counts everything anew: slow, and simple
// enough to be checked by reading. The engine must agree with it to the picosecond and the byte.
#pragma once

#include <optional>
#include <vector>

#include "sim/results/run_result.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/serving/replica.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

// One replica; buffer_length 1 is the recurrent form, otherwise the buffered one that flushes every
// buffer_length tokens of a request. No drafts.
RunResult run_oracle(const std::vector<Arrival>& arrivals, const ReplicaSpec& spec, int buffer_length,
                     const StepPricer& pricer, std::optional<Time> horizon);

}  // namespace kvsim
