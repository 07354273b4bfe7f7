// The serving loop: arrivals and steps as events on one replica, and what the requests experienced.
#pragma once

#include <optional>
#include <vector>

#include "sim/results/run_result.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/serving/replica.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

struct ServeOutcome {
    RunResult result;
    std::vector<RequestRecord> records;  // as list.arrivals
};

// Runs until every request has completed or been rejected, or until the horizon: a step that would end after
// it does not count. Checks the invariants of sim/README.md and throws InvariantError when one is broken.
ServeOutcome serve(const ArrivalList& list, const ReplicaLimits& limits, DecodeForm form,
                   const StepPricer& pricer, std::optional<Time> horizon);

}  // namespace kvsim
