// Whether a system keeps up with what arrives: follows the number of requests in it, in bounded memory.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {

// The rule. A system that does not keep up gains requests steadily, like a random walk with a drift; one that
// does comes back to where it was. Over the second half of the arrivals, the growth is the mean increment of
// the number in the system per arrival, with an interval of two standard errors taken from 32 to 64
// increments over equally many arrivals each. Increments of a stable system undo each other, which makes that
// interval too wide rather than too narrow.
//   unstable   the whole interval lies above zero
//   stable     the whole interval lies below 0.05: at most one arrival in twenty stays for good
//   too_short  neither; or fewer than 64 arrivals; or the second half of the arrivals spans less than two
//              mean times from admission to last token, when a system that keeps up is still filling
class Backlog {
  public:
    Backlog() { points_.reserve(kMost); }

    // At every arrival, in order: the number in the system that it finds.
    void arrival(Time now, std::int64_t in_system) {
        if (arrivals_++ % stride_ == 0) keep({now, in_system});
    }
    // `stay`: mean time from admission to last token.
    StabilityTest test(Time stay) const;

  private:
    struct Point {
        Time time;
        std::int64_t in_system = 0;
    };
    static constexpr std::size_t kMost = 128;

    void keep(Point point);

    std::int64_t arrivals_ = 0;
    std::int64_t stride_ = 1;    // arrivals from one point to the next
    std::vector<Point> points_;  // fewer than kMost
};

}  // namespace kvsim
