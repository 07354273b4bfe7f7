#include "sim/policies/flush.hpp"
#include "sim/policies/flush_calendar.hpp"

namespace kvsim {
namespace {

class FixedLengthFlush final : public FlushPolicy {
  public:
    explicit FixedLengthFlush(const FlushParts& parts) : rows_(parts.buffer_length, parts.ring) {}

    std::int64_t join(std::int64_t first) override {
        rows_.join(first, first_flush(first));
        return 0;
    }
    void leave(std::int64_t /*ticket*/, std::int64_t first, std::int64_t next) override {
        rows_.leave(first, first_flush(first), next);
    }
    void step(std::int64_t step, const FlushConditions&, StepShape& shape) override {
        rows_.step(step, shape);
    }
    void fold(std::int64_t step) override { rows_.fold(step); }
    void set_length(int buffer_length, std::int64_t step) override { rows_.set_length(buffer_length, step); }
    std::int64_t buffered_tokens() const override { return rows_.buffered_tokens(); }

  private:
    std::int64_t first_flush(std::int64_t first) const { return first + rows_.length_before(first) - 1; }

    FlushCalendar rows_;
};

}  // namespace

std::unique_ptr<FlushPolicy> make_fixed_length_flush(const FlushParts& parts) {
    return std::make_unique<FixedLengthFlush>(parts);
}

}  // namespace kvsim
