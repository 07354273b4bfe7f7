// Reads clocks and power on a thread of its own while the GPU works.
#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "kernels/calibrate/device_info.hpp"

namespace kvsim::calibrate {

struct ClockSample {
    std::chrono::steady_clock::time_point at;
    Clocks clocks;
    Power power;
};

// Samples from construction to stop(), one every `period` or as fast as the driver answers. `reader` must
// outlive it.
class ClockSampler {
  public:
    ClockSampler(const ClockReader& reader, std::chrono::microseconds period);

    std::vector<ClockSample> stop();  // once

  private:
    std::vector<ClockSample> samples_;
    std::jthread thread_;
};

}  // namespace kvsim::calibrate
