// Takes in what a run yields while it runs, in bounded memory, and sums it up at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {

// All that is kept of a request that has finished. Its time in the system is
//   queue + prefill + decode,   decode = steps of its own + interference + preempted (+ flush within steps).
struct FinishedRequest {
    Time arrived;
    Time queue;         // to its first admission
    Time ttft;          // to its first token
    Time e2e;           // to its last token
    Time interference;  // after its first token: in steps, or parts of mixed ones, that prefilled others
    Time preempted;     // out of memory and waiting, or being computed again
    Time flush;         // by which flushes of any row made its decode steps longer
    std::uint32_t prompt_tokens = 0;
    std::uint32_t output_tokens = 0;
};
static_assert(sizeof(FinishedRequest) <= 64);

}  // namespace kvsim
