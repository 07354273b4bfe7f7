// When a row of a buffered form flushes, with and without drafts.
//
// A step with T > 1 verifies: a row that flushes folds the records it came with, and those of its new tokens
// that are kept count from there; what is rejected is forgotten by the ring's cursor and costs nothing. A
// step with T = 1 decodes: a row that flushes folds its new token too and comes out empty (folded_records in
// kernels/traffic_linear.hpp). Either way the new records lie beside the old ones until the step has ended:
// fill + T <= C in every step (kernels/launch.hpp).
#pragma once

#include <algorithm>

#include "sim/memory/capacity.hpp"

namespace kvsim {

class RingRule {
  public:
    RingRule(const LinearServing& linear, DraftRecords drafts)
        : capacity_(ring_records(linear, drafts)),
          most_in_ring_(capacity_ - (linear.drafts > 0 ? 1 + linear.drafts : 0)),
          most_records_(std::min(std::max(linear.buffer_length, 1 + linear.drafts), most_in_ring_)) {}

    int capacity() const { return capacity_; }  // C, records of the ring

    // A row that has so many records, or more, flushes in a step of `tokens` tokens per row. Decode: the step
    // that appends the last one that it may have. Verification: if it might come out with more.
    int flush_at(int tokens) const { return at(most_records_, tokens); }
    // The same of a row whose flush is put off for as long as its ring has room.
    int full_at(int tokens) const { return at(most_in_ring_, tokens); }

  private:
    static int at(int most, int tokens) { return most - (tokens == 1 ? 1 : tokens - 1); }

    int capacity_;
    int most_in_ring_;
    // With which a row ever comes: those of a buffer, and so few that a step of the most tokens has room.
    int most_records_;
};

}  // namespace kvsim
