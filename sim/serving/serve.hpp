// The serving loop: arrivals and steps as events on one or several replicas.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "sim/results/collector.hpp"
#include "sim/results/run_result.hpp"
#include "sim/serving/decode_rows.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/serving/replica.hpp"
#include "sim/workload/arrivals.hpp"

namespace kvsim {

struct ServeSpec {
    ReplicaSpec replica;
    int replicas = 1;
    RouterRule router = RouterRule::kRoundRobin;
    // One queue before all replicas, each of which takes one request at a time (M/M/k): instead of a router.
    bool shared_queue = false;
    std::function<std::unique_ptr<DecodeRows>()> make_rows;  // called once per replica
    std::optional<Time> horizon;
};

// Runs until every request has completed or been rejected, or until the horizon: a step that would end after
// it does not count. Checks the invariants of sim/README.md and throws InvariantError when one is broken.
RunResult serve(const ServeSpec& spec, ArrivalSource& arrivals, const StepPricer& pricer,
                Collector collector = Collector());

}  // namespace kvsim
