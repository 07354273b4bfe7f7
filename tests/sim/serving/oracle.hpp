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

struct OracleSpec {
    ReplicaSpec replica;
    int replicas = 1;
    RouterRule router = RouterRule::kRoundRobin;
    LinearServing linear;         // recurrent, or buffered; without drafts with flushes of fixed_length
    SpeculationSpec speculation;  // none, static or table; linear.drafts and replica.drafts are its most
    DraftRecords draft_records = DraftRecords::kWithin;
    std::uint64_t seed = 1;
};

RunResult run_oracle(const std::vector<Arrival>& arrivals, const OracleSpec& spec, const StepPricer& pricer,
                     std::optional<Time> horizon);

}  // namespace kvsim
