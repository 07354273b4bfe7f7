// What the scheduler knows of cost: a step has a price. The cost model stands behind it, or a fake in tests.
#pragma once

#include "sim/cost/step_shape.hpp"

namespace kvsim {

class StepPricer {
  public:
    virtual ~StepPricer() = default;
    // The time is positive; times by source sum to it.
    virtual StepPrice price(const StepShape& shape) const = 0;
};

}  // namespace kvsim
