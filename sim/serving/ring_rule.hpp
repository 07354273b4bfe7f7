// When a row of a buffered form flushes, with and without drafts.
//
// A step with T > 1 verifies: a row that flushes folds the records it came with, and those of its new tokens
// take their place; what is rejected is forgotten by the ring's cursor and costs nothing. A step with T = 1
// decodes: a row that flushes folds its new token too and comes out empty (folded_records in
// kernels/traffic_linear.hpp).
#pragma once

#include "sim/memory/capacity.hpp"

namespace kvsim {

class RingRule {
  public:
    RingRule(const LinearServing& linear, DraftRecords drafts)
        : length_(linear.buffer_length), capacity_(ring_records(linear, drafts)), drafts_(drafts) {}

    int capacity() const { return capacity_; }  // records of the ring

    // A row that has so many records, or more, flushes in a step of `tokens` tokens per row. Decode: the step
    // that appends the m-th. Verification: m records beside the drafts'; or no room for the new ones, where
    // these live among the m.
    int flush_at(int tokens) const {
        if (tokens == 1) return length_ - 1;
        return drafts_ == DraftRecords::kBeside ? length_ : capacity_ - tokens + 1;
    }

  private:
    int length_;
    int capacity_;
    DraftRecords drafts_;
};

}  // namespace kvsim
