// Times of decode steps by buffer length, as a form policy asks for them.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/policies/form.hpp"
#include "sim/serving/pricer.hpp"

namespace kvsim {

// Rows without context: attention costs the same in all forms. In even phases floor(rows / m) or one more
// flush in a step, so the mean lies between two prices. Each is asked for once. `pricer` outlives this.
class PricedLengths final : public LengthTimes {
  public:
    explicit PricedLengths(const StepPricer& pricer) : pricer_(pricer) {}

    Time step_time(int buffer_length, std::int64_t rows) const override;

  private:
    Time with_flushes(int buffer_length, std::int64_t rows, std::int64_t flushes) const;

    const StepPricer& pricer_;
    mutable std::vector<std::vector<Time>> known_;  // by length and rows; none: not asked for yet
};

}  // namespace kvsim
