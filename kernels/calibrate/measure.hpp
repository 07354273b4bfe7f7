// `kvcalib measure`: the passes over all cases.
#pragma once

#include <string>
#include <vector>

#include "kernels/calibrate/device_info.hpp"
#include "kernels/calibrate/plan.hpp"

namespace kvsim::calibrate {

// What became of the rows, for the manifest and the exit code.
struct Measurement {
    std::vector<ProfileRow> rows;  // of the cases, in their order
    int failed = 0;                // output unequal to the reference: not timed
    int limited = 0;               // timed while power or temperature held the clocks down
    int unsettled = 0;             // timed, but the replays' spread stayed above the rule
    Clocks clocks_before, clocks_after;
    int highest_sm_mhz = 0;
    std::string no_cupti_us;  // why durations are missing; empty when they are there
    std::string no_counters;  // likewise
};

struct MeasureOptions {
    bool counters = true;
    std::uint64_t seed = 1;
};

// Three passes, so that nothing is timed in a process that a profiler has touched: verify and time; kernel
// durations; counters. A CUPTI that fails costs its columns, not the measurement. Progress on stderr.
// Throws CudaError when the first pass cannot go on.
Measurement measure(const std::vector<Case>& cases, const DeviceInfo& device, const MeasureOptions& options);

}  // namespace kvsim::calibrate
