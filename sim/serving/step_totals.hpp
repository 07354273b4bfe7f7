// Sums over the steps of a run, and the gaps between tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cost/step_shape.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {

class StepTotals {
  public:
    // A step that has ended, during which `running` requests were admitted. Checks the price (invariant 7).
    void add_step(const StepShape& shape, const StepPrice& price, std::int64_t running);
    // `count` requests got a token `gap` after their previous one.
    void add_gaps(Time gap, std::int64_t count);
    void add_tokens(std::int64_t count) { generated_tokens_ += count; }

    Time busy() const { return busy_; }
    std::int64_t generated_tokens() const { return generated_tokens_; }
    // Fills in everything about steps and tokens, given the time that was simulated and the requests
    // completed.
    void write(RunResult& result, Time simulated);

  private:
    std::int64_t steps_ = 0;
    std::int64_t generated_tokens_ = 0;
    std::int64_t running_sum_ = 0;
    std::int64_t linear_tokens_ = 0;
    std::int64_t flushes_ = 0;
    Time busy_;
    Time linear_time_;
    ByteLedger bytes_{};
    std::array<Time, kSourceCount> time_by_source_{};
    std::vector<TimeSamples> gaps_;  // runs of equal gaps
};

}  // namespace kvsim
