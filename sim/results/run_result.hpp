// What one run yields: the numbers of a row of runs.csv and of `kvsim run --json`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/step_shape.hpp"

namespace kvsim {

// Percentiles by linear interpolation between closest ranks (numpy's default), over `count` samples; empty
// without any.
struct Summary {
    std::int64_t count = 0;
    std::optional<double> mean, p50, p90, p99;
};
Summary summarise(std::vector<double>& samples);  // sorts in place

// `count` samples of the same duration.
struct TimeSamples {
    Time time;
    std::int64_t count = 0;
};
// In milliseconds; equals the summary of the samples written out one by one.
Summary summarise_ms(std::vector<TimeSamples>& samples);  // sorts in place

struct RequestCounts {
    std::int64_t read = 0;  // == completed + rejected + dropped + unfinished
    std::int64_t completed = 0;
    std::int64_t rejected = 0;    // can never fit: refused at arrival
    std::int64_t dropped = 0;     // unusable rows of a trace
    std::int64_t unfinished = 0;  // not arrived, queued or running at the horizon; all of a steady batch
};

// What a rejected request would not fit; sums to RequestCounts::rejected.
struct RejectedBy {
    std::int64_t state_slots = 0;
    std::int64_t kv_tokens = 0;
    std::int64_t max_running = 0;
};

struct RunResult {
    RequestCounts requests;
    RejectedBy rejected_by;
    std::int64_t inversions = 0;                         // rows of a trace that came before their predecessor
    std::int64_t clamped = 0;                            // drawn lengths that were moved into their bounds
    Summary prompt_tokens, output_tokens;                // of the requests read and usable
    Summary ttft_ms, tpot_ms, itl_ms, e2e_ms, queue_ms;  // completed requests; ITL: every gap between tokens
    std::int64_t one_token_outputs = 0;                  // completed, without a TPOT
    std::int64_t generated_tokens = 0;
    double output_tokens_per_s = 0.0;  // generated / simulated time
    double requests_per_s = 0.0;       // completed / simulated time
    std::int64_t steps = 0;
    Time simulated;  // from zero to the last event, or to the horizon
    Time busy;       // sum of step times
    ByteLedger bytes{};
    std::array<Time, kSourceCount> time_by_source{};  // sums to busy
    Time linear_time;                                 // of which: decode kernels of linear attention
    std::int64_t linear_tokens = 0;                   // tokens that those decoded
    std::int64_t flushes = 0;
    double mean_batch = 0.0;  // admitted requests, mean over steps
};

}  // namespace kvsim
