// Kernel durations from CUPTI activity records.
#pragma once

#include <functional>

#include "kernels/calibrate/cupti_support.hpp"
#include "sim/base/units.hpp"

namespace kvsim::calibrate {

// Records kernels while it lives; at most one at a time. Throws CuptiError.
class ActivityRecorder {
  public:
    ActivityRecorder();
    ~ActivityRecorder();
    ActivityRecorder(const ActivityRecorder&) = delete;
    ActivityRecorder& operator=(const ActivityRecorder&) = delete;

    // Median duration of the `kernels` kernels that `work` launches; waits for them. Throws CuptiError when
    // records were dropped, came without times, or are not as many.
    Time median_duration(int kernels, const std::function<void()>& work);
};

}  // namespace kvsim::calibrate
