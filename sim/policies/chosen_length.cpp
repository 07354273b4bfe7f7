#include <limits>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/policies/form.hpp"

namespace kvsim {
namespace {

constexpr double kLeastGain = 0.002;  // of the step, for which a choice is changed

class ChosenLength final : public FlushPolicy {
  public:
    ChosenLength(std::vector<int> lengths, int ring, std::unique_ptr<FlushPolicy> flush,
                 const LengthTimes& times)
        : lengths_(std::move(lengths)), ring_(ring), flush_(std::move(flush)), times_(times) {
        KVSIM_CHECK(!lengths_.empty(), "no length to choose");
    }

    std::int64_t join(std::int64_t first) override {
        ++rows_;
        return flush_->join(first);
    }

    void leave(std::int64_t ticket, std::int64_t first, std::int64_t next) override {
        --rows_;
        flush_->leave(ticket, first, next);
    }

    void step(std::int64_t step, const FlushConditions& conditions, StepShape& shape) override {
        if (rows_ > 0 && rows_ != rows_of_choice_ && step >= next_look_) choose(step);
        if (length_ != 1) {
            flush_->step(step, conditions, shape);
            return;
        }
        const std::int64_t records = flush_->buffered_tokens();
        if (records > 0) {
            shape[Form::kBuffered] = {rows_, rows_, records, rows_, records + rows_};
        } else {
            shape[Form::kRecurrent] = {rows_, rows_, 0, 0, 0};
        }
        flush_->fold(step);
    }

    void fold(std::int64_t step) override { flush_->fold(step); }

    void set_length(int /*buffer_length*/, std::int64_t step) override {
        KVSIM_CHECK(false, "step {}: the length is chosen here", step);
    }

    std::int64_t buffered_tokens() const override { return flush_->buffered_tokens(); }

  private:
    void choose(std::int64_t step) {
        rows_of_choice_ = rows_;
        int best = lengths_.front();
        Time shortest = times_.step_time(best, rows_);
        Time present = shortest;  // of the choice that stands
        for (const int length : lengths_) {
            const Time time = times_.step_time(length, rows_);
            if (time < shortest) {
                shortest = time;
                best = length;
            }
            if (length == length_) present = time;
        }
        if (best == length_ || (length_ != 0 && shortest / present > 1.0 - kLeastGain)) return;
        length_ = best;
        next_look_ = step + ring_;
        if (length_ != 1) flush_->set_length(length_, step);
    }

    std::vector<int> lengths_;
    std::int64_t ring_;
    std::unique_ptr<FlushPolicy> flush_;
    const LengthTimes& times_;
    std::int64_t rows_ = 0;
    int length_ = 0;                   // 0: nothing chosen yet
    std::int64_t rows_of_choice_ = 0;  // when it was looked last
    std::int64_t next_look_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace

std::unique_ptr<FlushPolicy> make_chosen_length(std::vector<int> lengths, int ring,
                                                std::unique_ptr<FlushPolicy> flush,
                                                const LengthTimes& times) {
    return std::make_unique<ChosenLength>(std::move(lengths), ring, std::move(flush), times);
}

}  // namespace kvsim
