#include "kernels/calibrate/clock_sampler.hpp"

#include <algorithm>
#include <utility>

namespace kvsim::calibrate {

ClockSampler::ClockSampler(const ClockReader& reader, std::chrono::microseconds period)
    : thread_([this, &reader, period](const std::stop_token& stopped) {
          auto next = std::chrono::steady_clock::now();
          while (!stopped.stop_requested()) {
              const auto at = std::chrono::steady_clock::now();
              samples_.push_back({at, reader.read(), reader.power()});
              next = std::max(next + period, std::chrono::steady_clock::now());
              std::this_thread::sleep_until(next);
          }
      }) {}

std::vector<ClockSample> ClockSampler::stop() {
    thread_.request_stop();
    thread_.join();
    return std::move(samples_);
}

}  // namespace kvsim::calibrate
