// Flush policies the slow way: every row is followed by itself in every step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/policies/flush.hpp"

namespace kvsim {

class FollowedRows {
  public:
    FollowedRows(std::string_view policy, const FlushParts& parts) : policy_(policy), parts_(parts) {}

    // Rows are known by the number that the caller gives.
    void join(int number);
    void leave(int number);
    LinearWork step(std::int64_t step, const FlushConditions& conditions);
    void fold(std::int64_t step);
    void set_length(int length) { parts_.buffer_length = length; }

    std::int64_t buffered_tokens() const;
    std::int64_t most_records() const;  // of any row
    int rows() const { return static_cast<int>(rows_.size()); }
    int number(int index) const { return rows_[static_cast<std::size_t>(index)].number; }

  private:
    struct Row {
        int number = 0;
        std::int64_t records = 0;
        std::int64_t steps_left = 0;  // to its flush, that step included; where this is known
    };

    bool knows_its_step() const { return policy_ == "fixed_length" || policy_ == "staggered"; }
    std::int64_t emptiest_step() const;
    bool cycle_ends(std::int64_t step);
    // Indices of the rows that flush in this step, once each has the record of the step.
    std::vector<std::size_t> flushing(std::int64_t step, const FlushConditions& conditions);
    std::vector<std::size_t> longest_waiting(const FlushConditions& conditions) const;

    std::string_view policy_;
    FlushParts parts_;
    std::vector<Row> rows_;
    std::int64_t cycle_left_ = 0;  // aligned: steps to the common flush; 0 before the first step
};

}  // namespace kvsim
