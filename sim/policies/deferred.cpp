#include <algorithm>
#include <limits>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/policies/flush.hpp"

namespace kvsim {
namespace {

constexpr double kMemoryPressure = 0.9;

enum class When : std::uint8_t { kAlways, kUnderLoad };

bool defers(When when, const FlushConditions& conditions) {
    return when == When::kAlways || conditions.waiting > 0 || conditions.memory_used >= kMemoryPressure;
}

// Rows in the order of their last flush, which is that of their fill: the head has waited longest. A step
// looks at the rows that flush and at one more.
class DeferredFlush final : public FlushPolicy {
  public:
    DeferredFlush(const FlushParts& parts, When when)
        : length_(parts.buffer_length), ring_(parts.ring), most_(parts.spec.most_per_step), when_(when) {
        KVSIM_CHECK(length_ >= 1 && length_ <= ring_ && most_ >= 0,
                    "cycles of {} tokens in rings of {}, {} flushes per step", length_, ring_, most_);
    }

    // The ticket is the row's place in nodes_.
    std::int64_t join(std::int64_t first) override {
        std::size_t row = nodes_[kFree].next;
        if (row == kFree) {
            row = nodes_.size();
            nodes_.push_back({first, row, row});
        } else {
            unlink(row);
            nodes_[row].start = first;
        }
        append(row, kQueue);
        ++rows_;
        return static_cast<std::int64_t>(row);
    }

    void leave(std::int64_t ticket, std::int64_t first, std::int64_t next) override {
        const auto row = static_cast<std::size_t>(ticket);
        KVSIM_CHECK(row > kFree && row < nodes_.size() && nodes_[row].start >= first && rows_ > 0,
                    "a row left that had not joined at step {}", first);
        buffered_ -= next - start(row);
        unlink(row);
        append(row, kFree);
        --rows_;
    }

    void step(std::int64_t step, const FlushConditions& conditions, StepShape& shape) override {
        LinearWork& work = shape[Form::kBuffered];
        work.sequences = rows_;
        work.new_tokens = rows_;
        work.buffered_tokens = buffered_;
        work.flushes = 0;
        work.flushed_tokens = 0;
        const std::int64_t most = most_flushes(conditions);
        while (rows_ > 0) {
            const std::size_t row = nodes_[kQueue].next;
            const std::int64_t records = step + 1 - start(row);  // with the one of this step
            if (records < length_ || (work.flushes >= most && records < ring_)) break;
            ++work.flushes;
            work.flushed_tokens += records;
            nodes_[row].start = step + 1;
            unlink(row);
            append(row, kQueue);
        }
        buffered_ += rows_ - work.flushed_tokens;
    }

    void fold(std::int64_t step) override {
        emptied_ = step + 1;
        buffered_ = 0;
    }

    void set_length(int buffer_length, std::int64_t /*step*/) override {
        KVSIM_CHECK(buffer_length >= 1 && buffer_length <= ring_, "cycles of {} tokens in rings of {}",
                    buffer_length, ring_);
        length_ = buffer_length;
    }

    std::int64_t buffered_tokens() const override { return buffered_; }

  private:
    // A ring of nodes behind each of two heads: rows that decode, and places that are free.
    static constexpr std::size_t kQueue = 0;
    static constexpr std::size_t kFree = 1;
    struct Node {
        std::int64_t start;  // step that wrote the row's oldest record
        std::size_t previous;
        std::size_t next;
    };

    void unlink(std::size_t row) {
        nodes_[nodes_[row].previous].next = nodes_[row].next;
        nodes_[nodes_[row].next].previous = nodes_[row].previous;
    }
    void append(std::size_t row, std::size_t head) {
        const std::size_t last = nodes_[head].previous;
        nodes_[row].previous = last;
        nodes_[row].next = head;
        nodes_[last].next = row;
        nodes_[head].previous = row;
    }
    std::int64_t start(std::size_t row) const { return std::max(nodes_[row].start, emptied_); }

    std::int64_t most_flushes(const FlushConditions& conditions) const {
        if (!defers(when_, conditions)) return rows_;
        return most_ > 0 ? most_ : (rows_ + length_ - 1) / length_;
    }

    std::int64_t length_;
    std::int64_t ring_;
    std::int64_t most_;
    When when_;
    std::vector<Node> nodes_{{0, kQueue, kQueue}, {0, kFree, kFree}};
    std::int64_t rows_ = 0;
    std::int64_t buffered_ = 0;
    std::int64_t emptied_ = std::numeric_limits<std::int64_t>::min();  // no row holds an older record
};

class DeferredRowFlush final : public RowFlushPolicy {
  public:
    DeferredRowFlush(const FlushParts& parts, When when)
        : length_(parts.buffer_length), most_(parts.spec.most_per_step), when_(when) {}

    void pick(const RowFills& fills, const FlushConditions& conditions,
              std::vector<std::size_t>& rows) override {
        const auto& records = fills.records;
        const auto first = static_cast<std::ptrdiff_t>(rows.size());
        std::int64_t full = 0;
        for (std::size_t i = 0; i < records.size(); ++i) {
            if (records[i] < fills.due) continue;
            rows.push_back(i);
            full += records[i] >= fills.full ? 1 : 0;
        }
        const auto due = static_cast<std::int64_t>(rows.size()) - first;
        const auto count = static_cast<std::int64_t>(records.size());
        const std::int64_t bound = most_ > 0 ? most_ : (count * fills.tokens + length_ - 1) / length_;
        const std::int64_t most = std::max(bound, full);
        if (due <= most || !defers(when_, conditions)) return;
        const auto goes_before = [&](std::size_t a, std::size_t b) {
            return records[a] != records[b] ? records[a] > records[b] : fills.requests[a] < fills.requests[b];
        };
        std::nth_element(rows.begin() + first, rows.begin() + first + most, rows.end(), goes_before);
        rows.resize(static_cast<std::size_t>(first + most));
    }

  private:
    std::int64_t length_;
    std::int64_t most_;
    When when_;
};

}  // namespace

std::unique_ptr<RowFlushPolicy> make_deferred_row_flush(const FlushParts& parts) {
    return std::make_unique<DeferredRowFlush>(parts, When::kAlways);
}

std::unique_ptr<RowFlushPolicy> make_deferred_under_load_row_flush(const FlushParts& parts) {
    return std::make_unique<DeferredRowFlush>(parts, When::kUnderLoad);
}

std::unique_ptr<FlushPolicy> make_deferred_flush(const FlushParts& parts) {
    return std::make_unique<DeferredFlush>(parts, When::kAlways);
}

std::unique_ptr<FlushPolicy> make_deferred_under_load_flush(const FlushParts& parts) {
    return std::make_unique<DeferredFlush>(parts, When::kUnderLoad);
}

}  // namespace kvsim
