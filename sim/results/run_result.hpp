// What one run yields: the numbers of a row of runs.csv and of `kvsim run --json`.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/memory/prefix_counts.hpp"

namespace kvsim {

// All that is kept of a request that has finished. Its time in the system is
//   e2e = queue + prefill + decode,   prefill = ttft - queue,   decode = e2e - ttft
//   decode = steps of its own + interference + preempted + flush
struct FinishedRequest {
    Time arrived;
    Time queue;         // to its first admission
    Time ttft;          // to its first token
    Time e2e;           // to its last token
    Time interference;  // after its first token: in steps, or parts of mixed ones, that prefilled others
    Time preempted;     // after its first token: out of memory and waiting, or being computed again
    Time flush;         // by which flushes of any row made its decode steps longer
    std::uint32_t prompt_tokens = 0;
    std::uint32_t output_tokens = 0;
};
static_assert(sizeof(FinishedRequest) <= 64);
// Grows without moving what it holds, which would take as much memory again.
using FinishedRequests = std::deque<FinishedRequest>;

// Percentiles by linear interpolation between closest ranks (numpy's default), over `count` samples; empty
// without any.
struct Summary {
    std::int64_t count = 0;
    std::optional<double> mean, p50, p90, p99;
    std::optional<double> p95{}, max{}, std{};  // std: of the samples as a population, as numpy's
    // Half the 95 % confidence interval of the mean, by batch means: t x standard error of the means of 20
    // batches of samples that follow each other. Samples in no order in time, or fewer than 100, have none.
    std::optional<double> ci95{};
};
// Of values x scale, for example 1e-9 for picoseconds in milliseconds; all >= 0, in order of time.
Summary summarise(std::span<const std::int64_t> values, double scale);
Summary summarise(std::span<const double> values);
// `count` samples of the same value.
Summary constant_summary(double value, std::int64_t count);

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
    std::int64_t blocks = 0;  // of a paged pool
    std::int64_t bytes = 0;   // of a pool of bytes
};

// Whether the requests in the system keep growing; the rule is in backlog.hpp.
enum class Stability : std::uint8_t { kTooShort, kStable, kUnstable };
inline constexpr std::array<std::string_view, 3> kStabilityNames{"too_short", "stable", "unstable"};
struct StabilityTest {
    Stability verdict = Stability::kTooShort;
    std::optional<double> growth{};  // requests that stay, per arrival
    std::optional<double> ci95{};    // half its interval
};

// Where the time of requests went: means, in milliseconds, that sum to the mean E2E. Empty without requests.
struct Breakdown {
    std::int64_t requests = 0;
    double queue_ms = 0.0, prefill_ms = 0.0;  // until the first token
    double decode_ms = 0.0;                   // steps of their own, without flushes
    double interference_ms = 0.0, preempted_ms = 0.0, flush_ms = 0.0;

    double e2e_ms() const {
        return queue_ms + prefill_ms + decode_ms + interference_ms + preempted_ms + flush_ms;
    }
};

struct RunResult {
    RequestCounts requests;
    RejectedBy rejected_by;
    std::int64_t inversions = 0;           // rows of a trace that came before their predecessor
    std::int64_t clamped = 0;              // drawn lengths that were moved into their bounds
    Summary prompt_tokens, output_tokens;  // of all requests that arrived
    // Completed requests that arrived after the warm-up.
    Summary ttft_ms, tpot_ms, e2e_ms, queue_ms;
    std::int64_t one_token_outputs = 0;      // of these, without a TPOT
    Breakdown breakdown, slowest_breakdown;  // of all of these; of the 1 % with the largest E2E
    // After the warm-up: gaps between deliveries of tokens to a request, and the same shared out to the
    // tokens.
    Summary itl_ms, itl_token_ms;
    std::optional<double> acceptance_length;  // tokens per delivery: 1 without speculation
    std::int64_t preemptions = 0;
    StabilityTest stability;

    std::int64_t generated_tokens = 0;
    double output_tokens_per_s = 0.0;  // generated / time, both after the warm-up
    double requests_per_s = 0.0;       // completed / time, both after the warm-up
    // Requests that arrived after the warm-up, completed and met every objective: per second, and as a share
    // of all that arrived after it. Empty without objectives.
    std::optional<double> goodput_per_s, slo_attainment;

    std::int64_t steps = 0;
    Time simulated;  // from zero to the last event, or to the horizon
    Time busy;       // sum of step times, over all replicas
    ByteLedger bytes{};
    std::array<Time, kSourceCount> time_by_source{};  // sums to busy
    Time linear_time;                                 // of which: decode kernels of linear attention
    Time flush_time;                                  // by which flushes made steps longer
    std::int64_t linear_tokens = 0;  // tokens that decode kernels took in, rejected drafts too
    std::int64_t flushes = 0;
    double mean_batch = 0.0;  // admitted requests, mean over steps
    std::optional<PrefixCounts> prefix_cache;  // of all replicas together; none without one

    FinishedRequests finished;  // in the order in which they finished, those of the warm-up too
};

}  // namespace kvsim
