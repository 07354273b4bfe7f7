#include "sim/serving/step_totals.hpp"

#include "sim/base/check.hpp"

namespace kvsim {

void StepTotals::add_step(const StepShape& shape, const StepPrice& price, std::int64_t running) {
    Time by_source;
    for (std::size_t i = 0; i < time_by_source_.size(); ++i) {
        by_source += price.time_by_source[i];
        time_by_source_[i] += price.time_by_source[i];
    }
    KVSIM_CHECK(price.time > Time() && by_source == price.time && price.linear_time >= Time() &&
                    price.linear_time <= price.time,
                "a step of {} ps, {} ps by source, {} ps of linear attention", price.time.value(),
                by_source.value(), price.linear_time.value());
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
        KVSIM_CHECK(price.bytes[i] >= Bytes(), "{} moved {} bytes", kOwnerNames[i], price.bytes[i].value());
        bytes_[i] += price.bytes[i];
    }
    for (const LinearWork& work : shape.linear) {
        linear_tokens_ += work.new_tokens;
        flushes_ += work.flushes;
    }
    ++steps_;
    busy_ += price.time;
    linear_time_ += price.linear_time;
    running_sum_ += running;
}

void StepTotals::add_gaps(Time gap, std::int64_t count) {
    if (count == 0) return;
    if (!gaps_.empty() && gaps_.back().time == gap) {
        gaps_.back().count += count;
    } else {
        gaps_.push_back({gap, count});
    }
}

void StepTotals::write(RunResult& result, Time simulated) {
    KVSIM_CHECK(busy_ <= simulated, "busy for {} of {} ps", busy_.value(), simulated.value());
    result.itl_ms = summarise_ms(gaps_);
    result.generated_tokens = generated_tokens_;
    result.steps = steps_;
    result.simulated = simulated;
    result.busy = busy_;
    result.bytes = bytes_;
    result.time_by_source = time_by_source_;
    result.linear_time = linear_time_;
    result.linear_tokens = linear_tokens_;
    result.flushes = flushes_;
    if (steps_ > 0) result.mean_batch = static_cast<double>(running_sum_) / static_cast<double>(steps_);
    if (simulated > Time()) {
        result.output_tokens_per_s = static_cast<double>(generated_tokens_) / to_seconds(simulated);
        result.requests_per_s = static_cast<double>(result.requests.completed) / to_seconds(simulated);
    }
}

}  // namespace kvsim
