// Requests drawn at random, one at a time.
#pragma once

#include <cstdint>

#include "sim/base/random.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

// Draws what requests hold, and when they arrive in an open loop.
class RequestDraws {
  public:
    // `workload` outlives it.
    RequestDraws(const SyntheticWorkload& workload, std::uint64_t seed);

    // The next arrival of an open loop. Throws ConfigError beyond the range of time.
    Time next_time();
    // A request that arrives at `time`.
    Arrival request(Time time);
    std::int64_t clamped() const { return clamped_; }

  private:
    const SyntheticWorkload& workload_;
    RandomStream gaps_;
    RandomStream prompts_;
    RandomStream outputs_;
    Time now_;
    std::int64_t clamped_ = 0;
};

// Cuts an answer off at what is declared of it; `clamped` counts.
void declare(Arrival& arrival, std::int64_t declared, std::int64_t& clamped);

}  // namespace kvsim
