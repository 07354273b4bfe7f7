// A steady decode: what sweeps of kernels and buffers compare.
#pragma once

#include <optional>

#include "sim/memory/capacity.hpp"
#include "sim/results/run_result.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

// Every row decodes `steps` tokens at the same context. Row i of B starts with floor(i m / B) records in its
// buffer, so that phases are spread over the cycle of m tokens; results are free of a bias of the phase when
// `steps` is a multiple of m. Nothing arrives or completes: the rows count as unfinished, TTFT, E2E and queue
// time have no samples, an ITL is a step's time, and a row's TPOT is their mean.
// A step that would end after the horizon does not count.
RunResult serve_steady(const SteadyWorkload& workload, const LinearServing& linear, const StepPricer& pricer,
                       std::optional<Time> horizon = std::nullopt);

}  // namespace kvsim
