// Takes in what a run yields while it runs, in bounded memory, and sums it up at the end: 64 bytes per
// finished request, so that percentiles of requests are exact, and histograms for everything that is counted
// per token.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/memory/serving_spec.hpp"
#include "sim/results/backlog.hpp"
#include "sim/results/histogram.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {

// What is known when a run ends, beside what the collector has seen.
struct RunEnd {
    Time simulated;            // from zero to the last event, or to the horizon
    std::int64_t read = 0;     // requests: == arrived + dropped + not arrived before the horizon
    std::int64_t dropped = 0;  // rows of a trace that are no requests
    std::int64_t inversions = 0;
    std::int64_t clamped = 0;
};

// Order of the calls at one instant: step() of the step that ends there, then its tokens(), gaps() and
// finished(), then arrived(). Of a run with several replicas all report to the same collector. Nothing
// allocates but finished(), amortised.
class Collector {
  public:
    // Times before `warmup` count in totals, but in no distribution, rate or goodput.
    explicit Collector(const SloSpec& slo = {}, Time warmup = {});

    // A request has arrived, whatever becomes of it. Arrivals come in order of time.
    void arrived(Time now, std::int64_t prompt_tokens, std::int64_t output_tokens);
    // The one that has just arrived can never fit.
    void rejected(Limit limit, std::int64_t count = 1);
    void finished(const FinishedRequest& request);
    // A running request has lost its memory and will be computed again.
    void preempted() { ++preemptions_; }
    // A step that has ended at `now`, during which `running` requests were admitted on its replica. Checks
    // the price (invariant 7).
    void step(const StepShape& shape, const StepPrice& price, std::int64_t running, Time now);
    // `count` deliveries to rows, each `gap` after the one before, of `tokens` in all. For itl_token_ms,
    // those given together should be of the same number of tokens: each token takes gap x count / tokens.
    void gaps(Time gap, std::int64_t count, std::int64_t tokens);
    // Output tokens of the step that has ended, the first ones after a prefill included.
    void tokens(std::int64_t count);

    // Arrived, and neither rejected nor finished.
    std::int64_t in_system() const {
        return arrived_ - rejected_ - static_cast<std::int64_t>(finished_.size());
    }
    Time busy() const { return busy_; }  // sum of step times, of all replicas
    std::int64_t generated_tokens() const { return generated_tokens_; }

    // Sums up and hands over the finished requests, in the order in which they finished: the last call.
    // Checks that requests are conserved (invariant 1) and that no replica was busy for longer than
    // `simulated`.
    RunResult take(const RunEnd& end, int replicas = 1);

  private:
    void count_requests(RunResult& result, const RunEnd& end) const;
    void sum_steps(RunResult& result, const RunEnd& end) const;
    void sum_requests(RunResult& result, const RunEnd& end) const;

    SloSpec slo_;
    Time warmup_;

    std::int64_t arrived_ = 0;
    std::int64_t arrived_late_ = 0;  // not before `warmup`
    std::int64_t rejected_ = 0;
    RejectedBy rejected_by_;
    FinishedRequests finished_;
    std::int64_t preemptions_ = 0;
    Histogram prompts_, outputs_;
    Backlog backlog_;

    bool warm_ = true;  // the last step ended at or after `warmup`
    std::int64_t steps_ = 0;
    std::int64_t running_sum_ = 0;
    std::int64_t generated_tokens_ = 0;
    std::int64_t tokens_late_ = 0;
    std::int64_t linear_tokens_ = 0;
    std::int64_t flushes_ = 0;
    Time busy_, linear_time_, flush_time_;
    ByteLedger bytes_{};
    std::array<Time, kSourceCount> time_by_source_{};

    std::int64_t deliveries_ = 0;
    std::int64_t delivered_ = 0;  // tokens in these
    bool one_token_each_ = true;  // every delivery so far: then token_gaps_ would be the same as gaps_
    Histogram gaps_, token_gaps_;
};

}  // namespace kvsim
