// A plain scheduler that follows every request in every step: slow, and simple enough to be checked by
// reading. The engine must agree with it to the picosecond and the byte.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/results/run_result.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/serving/replica.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

struct OracleOutcome {
    std::vector<RequestRecord> records;  // first_step is not filled in
    std::vector<double> gaps_ms;
    std::int64_t steps = 0;
    std::int64_t generated_tokens = 0;
    std::int64_t flushes = 0;
    Time simulated;
    Time busy;
    ByteLedger bytes{};
};

// buffer_length 1 is the recurrent form.
OracleOutcome run_oracle(const std::vector<Arrival>& arrivals, const ReplicaLimits& limits, int buffer_length,
                         const StepPricer& pricer, std::optional<Time> horizon);

}  // namespace kvsim
