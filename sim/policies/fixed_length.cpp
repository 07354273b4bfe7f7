#include <vector>

#include "sim/base/check.hpp"
#include "sim/policies/flush.hpp"

namespace kvsim {
namespace {

// Rows that joined at steps which are equal modulo m have equal fills for ever: (step - first) mod m. So a
// count per residue is all there is to keep, and a step costs the same for any number of rows.
class FixedLengthFlush final : public FlushPolicy {
  public:
    explicit FixedLengthFlush(int buffer_length)
        : length_(buffer_length), rows_of_phase_(static_cast<std::size_t>(buffer_length), 0) {
        KVSIM_CHECK(buffer_length >= 1, "buffer length {}", buffer_length);
    }

    std::int64_t join(std::int64_t first) override {
        ++rows_of_phase_[modulo(first)];
        ++rows_;
        return 0;
    }

    void leave(std::int64_t /*ticket*/, std::int64_t first, std::int64_t next) override {
        --rows_of_phase_[modulo(first)];
        --rows_;
        buffered_ -= static_cast<std::int64_t>(modulo(next - first));
        KVSIM_CHECK(rows_of_phase_[modulo(first)] >= 0 && buffered_ >= 0,
                    "a row left that had not joined at step {}", first);
    }

    void step(std::int64_t step, const FlushConditions&, StepShape& shape) override {
        LinearWork& work = shape[Form::kBuffered];
        work.sequences = rows_;
        work.new_tokens = rows_;
        work.buffered_tokens = buffered_;
        work.flushes = rows_of_phase_[modulo(step + 1)];  // fill m - 1 before the step
        work.flushed_tokens = length_ * work.flushes;
        buffered_ += rows_ - work.flushed_tokens;
    }

    std::int64_t buffered_tokens() const override { return buffered_; }

  private:
    std::size_t modulo(std::int64_t step) const {
        const std::int64_t rest = step % length_;
        return static_cast<std::size_t>(rest < 0 ? rest + length_ : rest);
    }

    std::int64_t length_;
    std::vector<std::int64_t> rows_of_phase_;
    std::int64_t rows_ = 0;
    std::int64_t buffered_ = 0;
};

}  // namespace

std::unique_ptr<FlushPolicy> make_fixed_length_flush(int buffer_length) {
    return std::make_unique<FixedLengthFlush>(buffer_length);
}

}  // namespace kvsim
