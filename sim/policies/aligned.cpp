#include <algorithm>
#include <limits>
#include <optional>

#include "sim/base/check.hpp"
#include "sim/policies/flush.hpp"

namespace kvsim {
namespace {

class AlignedFlush final : public FlushPolicy {
  public:
    explicit AlignedFlush(const FlushParts& parts) : length_(parts.buffer_length), ring_(parts.ring) {
        KVSIM_CHECK(length_ >= 1 && length_ <= ring_, "cycles of {} tokens in rings of {}", length_, ring_);
    }

    std::int64_t join(std::int64_t /*first*/) override {
        ++rows_;
        return 0;
    }

    void leave(std::int64_t /*ticket*/, std::int64_t first, std::int64_t next) override {
        --rows_;
        buffered_ -= next - std::max(first, start_);
        KVSIM_CHECK(rows_ >= 0 && buffered_ >= 0, "a row left that had not joined at step {}", first);
    }

    void step(std::int64_t step, const FlushConditions&, StepShape& shape) override {
        LinearWork& work = shape[Form::kBuffered];
        work.sequences = rows_;
        work.new_tokens = rows_;
        work.buffered_tokens = buffered_;
        buffered_ += rows_;
        const bool flush = ends_cycle(step);
        work.flushes = flush ? rows_ : 0;
        work.flushed_tokens = flush ? buffered_ : 0;
        if (flush) empty(step);
    }

    void fold(std::int64_t step) override {
        ends_cycle(step);
        empty(step);
    }

    void set_length(int buffer_length, std::int64_t /*step*/) override {
        KVSIM_CHECK(buffer_length >= 1 && buffer_length <= ring_, "cycles of {} tokens in rings of {}",
                    buffer_length, ring_);
        length_ = buffer_length;
    }

    std::int64_t buffered_tokens() const override { return buffered_; }

  private:
    // Cycles begin at multiples of the length until it changes.
    bool ends_cycle(std::int64_t step) {
        if (!flush_) {
            const std::int64_t rest = step % length_;
            flush_ = step - (rest < 0 ? rest + length_ : rest) + length_ - 1;
        }
        if (step < *flush_) return false;
        flush_ = step + length_;
        return true;
    }
    void empty(std::int64_t step) {
        buffered_ = 0;
        start_ = step + 1;
    }

    std::int64_t length_;
    std::int64_t ring_;
    std::optional<std::int64_t> flush_;                              // step of the next
    std::int64_t start_ = std::numeric_limits<std::int64_t>::min();  // no row holds an older record
    std::int64_t rows_ = 0;
    std::int64_t buffered_ = 0;
};

class AlignedRowFlush final : public RowFlushPolicy {
  public:
    void pick(const RowFills& fills, const FlushConditions&, std::vector<std::size_t>& rows) override {
        const auto& records = fills.records;
        if (std::ranges::none_of(records, [&](std::int32_t n) { return n >= fills.due; })) return;
        for (std::size_t i = 0; i < records.size(); ++i) {
            if (records[i] > 0) rows.push_back(i);
        }
    }
};

}  // namespace

std::unique_ptr<RowFlushPolicy> make_aligned_row_flush(const FlushParts&) {
    return std::make_unique<AlignedRowFlush>();
}

std::unique_ptr<FlushPolicy> make_aligned_flush(const FlushParts& parts) {
    return std::make_unique<AlignedFlush>(parts);
}

}  // namespace kvsim
