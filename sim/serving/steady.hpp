// A steady decode: what sweeps of kernels and buffers compare.
#pragma once

#include <optional>

#include "sim/memory/capacity.hpp"
#include "sim/results/run_result.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/serving/sampled_rows.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

// Every row decodes `steps` tokens at the same context. Rows have been served for long, after joining one by
// one over a cycle of m tokens (fill_buffers): under fixed_length row i of B starts with floor(i m / B)
// records, and an aligned cycle begins. Results are free of a bias of the phase when `steps` is a multiple of
// m. Nothing arrives or completes: the rows count as unfinished, TTFT, E2E and queue
// time have no samples, an ITL is a step's time, and a row's TPOT is their mean.
// A step that would end after the horizon does not count.
RunResult serve_steady(const SteadyWorkload& workload, const LinearServing& linear, const StepPricer& pricer,
                       std::optional<Time> horizon = std::nullopt);

// The same of rows that speculate: attention, acceptance and the choice of drafts stay those of the
// workload's context, whatever tokens come. Rows have been served for long, after joining one by one over as
// many steps as their ring has records: phases are spread, then drawn. A row's TPOT is the time over its
// tokens. Throws ConfigError: what make_sampled_rows() refuses; more steps than tokens can be counted for.
RunResult serve_steady_speculation(const SteadyWorkload& workload, const SampledRowsParts& parts,
                                   std::optional<Time> horizon = std::nullopt);

}  // namespace kvsim
