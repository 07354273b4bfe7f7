#include "sim/serving/speculative_times.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/check.hpp"

namespace kvsim {

SpeculativeTimes::SpeculativeTimes(Form verifies, RingRule ring, Acceptance acceptance,
                                   const StepPricer& pricer)
    : verifies_(verifies), ring_(ring), acceptance_(std::move(acceptance)), pricer_(pricer) {}

// Decode: fills 0 .. m - 1 in turn. Verification appends X = 1 + kept records per step, from those of the
// step that flushed to the first fill of F or more, which is F + (E X^2 / E X - 1) / 2 in the mean (renewal
// theory, the spread of the overshoot); a fill in between is taken as even likely.
SpeculativeTimes::Cycle SpeculativeTimes::cycle_of(std::int64_t context, int drafts) const {
    const int flush_at = ring_.flush_at(1 + drafts);
    if (drafts == 0) return {flush_at / 2.0, 1.0 / (flush_at + 1.0), flush_at + 1.0};
    double mean = 1.0;
    double square = 1.0;  // sum of (2 i - 1) P(X >= i)
    for (int i = 1; i <= drafts; ++i) {
        const double chance = acceptance_.expected(i, context) - acceptance_.expected(i - 1, context);
        mean += chance;
        square += (2.0 * i + 1.0) * chance;
    }
    const double folded = std::max(mean, flush_at + (square / mean - 1.0) / 2.0);
    return {(mean + folded) / 2.0, mean / folded, folded};
}

StepShape SpeculativeTimes::shape(std::int64_t rows, std::int64_t context, int drafts) const {
    KVSIM_CHECK(rows > 0 && drafts >= 0, "{} rows, {} drafts", rows, drafts);
    const int tokens = 1 + drafts;
    const Form form = form_of_step(verifies_, tokens);
    StepShape step;
    LinearWork& work = step[form];
    work.sequences = rows;
    work.new_tokens = rows * tokens;
    if (verifies_ == Form::kVerifyBuffered) {
        const Cycle cycle = cycle_of(context, drafts);
        const auto n = static_cast<double>(rows);
        work.buffered_tokens = std::llround(n * cycle.mean_fill);
        work.flushes = std::llround(n * cycle.flushes);
        work.flushed_tokens = std::llround(static_cast<double>(work.flushes) * cycle.folded);
    }
    step.decode = {rows, rows * context, context};
    step.logit_rows = rows * tokens;
    step.drafts = drafts;
    return step;
}

Time SpeculativeTimes::step_time(std::int64_t rows, std::int64_t context, int drafts) const {
    return pricer_.price(shape(rows, context, drafts)).time;
}

}  // namespace kvsim
