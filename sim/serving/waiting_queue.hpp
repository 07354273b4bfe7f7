// Who waits, in the order in which admission looks at them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/memory/serving_spec.hpp"
#include "sim/serving/decode_rows.hpp"

namespace kvsim {

// First come, or shortest first and of equal length first come. A heap on a vector: it allocates only while
// it grows.
class WaitingQueue {
  public:
    explicit WaitingQueue(QueueOrder order) : order_(order) {}

    // `tokens`: prompt and declared answer.
    void push_back(Slot slot, std::int64_t tokens) { push({key(tokens), last_++, slot}); }
    // Before all others of the same key.
    void push_front(Slot slot, std::int64_t tokens) { push({key(tokens), --first_, slot}); }

    bool empty() const { return heap_.empty(); }
    std::int64_t size() const { return static_cast<std::int64_t>(heap_.size()); }
    Slot front() const { return heap_.front().slot; }
    void pop() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        heap_.pop_back();
    }

  private:
    struct Entry {
        std::int64_t key = 0;
        std::int64_t sequence = 0;
        Slot slot = 0;
    };
    static bool later(const Entry& a, const Entry& b) {
        return a.key != b.key ? a.key > b.key : a.sequence > b.sequence;
    }
    std::int64_t key(std::int64_t tokens) const { return order_ == QueueOrder::kFirstCome ? 0 : tokens; }
    void push(const Entry& entry) {
        heap_.push_back(entry);
        std::push_heap(heap_.begin(), heap_.end(), later);
    }

    QueueOrder order_;
    std::vector<Entry> heap_;
    std::int64_t first_ = 0;  // sequence numbers in use: [first_, last_)
    std::int64_t last_ = 0;
};

}  // namespace kvsim
