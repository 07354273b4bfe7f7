// Times of decode steps with drafts, as a speculation policy asks for them: of a batch that has speculated
// with this number of drafts for long, so that its buffers are in mixed phases.
#pragma once

#include "sim/policies/speculation.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/serving/ring_rule.hpp"

namespace kvsim {

// The form of a step of T tokens per row: with one token it is plain decode. `verifies`: kVerifyStored or
// kVerifyBuffered.
constexpr Form form_of_step(Form verifies, int tokens) {
    if (tokens > 1) return verifies;
    return verifies == Form::kVerifyStored ? Form::kRecurrent : Form::kBuffered;
}

class SpeculativeTimes final : public StepTimes {
  public:
    // `verifies` as above. `pricer` outlives this.
    SpeculativeTimes(Form verifies, RingRule ring, Acceptance acceptance, const StepPricer& pricer);

    Time step_time(std::int64_t rows, std::int64_t context, int drafts) const override;
    // Records and flushes are those of a row's mean cycle, summed over the rows and rounded; what is folded,
    // those of whole flushes.
    StepShape shape(std::int64_t rows, std::int64_t context, int drafts) const;

  private:
    struct Cycle {               // of a row: from one flush to the next
        double mean_fill = 0.0;  // records that a step reads
        double flushes = 0.0;    // per step
        double folded = 0.0;     // records per flush
    };
    Cycle cycle_of(std::int64_t context, int drafts) const;

    Form verifies_;
    RingRule ring_;
    Acceptance acceptance_;
    const StepPricer& pricer_;
};

}  // namespace kvsim
