#include "sim/policies/flush.hpp"
#include "sim/policies/flush_calendar.hpp"

namespace kvsim {
namespace {

class StaggeredFlush final : public FlushPolicy {
  public:
    explicit StaggeredFlush(const FlushParts& parts) : rows_(parts.buffer_length, parts.ring) {}

    // The ticket is the step of the first flush.
    std::int64_t join(std::int64_t first) override {
        std::int64_t due = first + rows_.length() - 1;
        for (std::int64_t earlier = due - 1; earlier >= first; --earlier) {
            if (rows_.rows_due(earlier) < rows_.rows_due(due)) due = earlier;
        }
        rows_.join(first, due);
        return due;
    }
    void leave(std::int64_t ticket, std::int64_t first, std::int64_t next) override {
        rows_.leave(first, ticket, next);
    }
    void step(std::int64_t step, const FlushConditions&, StepShape& shape) override {
        rows_.step(step, shape);
    }
    void fold(std::int64_t step) override { rows_.fold(step); }
    void set_length(int buffer_length, std::int64_t step) override { rows_.set_length(buffer_length, step); }
    std::int64_t buffered_tokens() const override { return rows_.buffered_tokens(); }

  private:
    FlushCalendar rows_;
};

}  // namespace

std::unique_ptr<FlushPolicy> make_staggered_flush(const FlushParts& parts) {
    return std::make_unique<StaggeredFlush>(parts);
}

}  // namespace kvsim
