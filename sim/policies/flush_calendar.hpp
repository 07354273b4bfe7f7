// Rows by the step in which they flush next, for policies in which that step is known when a row flushes.
//
// Rows that flush together once do so for ever, whatever the lengths of later cycles are. So counts per step
// are all there is to keep, a step costs the same for any number of rows, and the whereabouts of one row
// follow from its first flush and the lengths since.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sim/cost/step_shape.hpp"

namespace kvsim {

class FlushCalendar {
  public:
    FlushCalendar(int length, int ring);

    // A row takes part from step `first` on and flushes first in step `due`, first <= due < first + ring.
    void join(std::int64_t first, std::int64_t due);
    // That row takes no part from step `next` on.
    void leave(std::int64_t first, std::int64_t due, std::int64_t next);
    // See FlushPolicy.
    void step(std::int64_t step, StepShape& shape);
    void fold(std::int64_t step);
    void set_length(int length, std::int64_t step);

    int length() const { return lengths_.back().length; }
    // Length that a row joined with whose first step is `first`.
    int length_before(std::int64_t first) const { return lengths_[before(first)].length; }
    std::int64_t rows_due(std::int64_t step) const { return days_[slot(step)].rows; }
    std::int64_t buffered_tokens() const { return buffered_; }

  private:
    // Rows that flush in one step. starts: sum of the steps in which they wrote the oldest record they hold.
    struct Day {
        std::int64_t rows = 0;
        std::int64_t starts = 0;
        std::int64_t emptied = 0;  // value of emptied_ that `starts` knows of
    };
    struct Length {
        std::int64_t from = 0;  // first step whose flushes start a cycle of this length
        int length = 1;
        std::int64_t joined = 0;  // rows that joined under it and are still here
    };

    std::size_t slot(std::int64_t step) const;
    Day& day(std::int64_t step);
    // Index of the length that was set last before step `step`.
    std::size_t before(std::int64_t step) const;
    Length& length_of(std::int64_t first) { return lengths_[before(first)]; }
    // The step of the next flush, from step `next` on, of a row that flushes in `due`, and the one before it.
    struct Flushes {
        std::int64_t last;
        std::int64_t next;
    };
    Flushes follow(std::int64_t due, std::int64_t next) const;
    void start_cycle(std::int64_t step);

    std::vector<Day> days_;       // of the next `ring` steps, by step modulo their number
    std::deque<Length> lengths_;  // as far back as a row remembers
    std::int64_t rows_ = 0;
    std::int64_t buffered_ = 0;
    std::int64_t emptied_;  // no row holds a record that is older than this step
};

}  // namespace kvsim
