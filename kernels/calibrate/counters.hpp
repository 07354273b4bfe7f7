// DRAM traffic from hardware counters, through CUPTI's range profiler.
#pragma once

#include <cupti_range_profiler.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/calibrate/metric_config.hpp"

namespace kvsim::calibrate {

// Ranges that one session takes: the size of its counter image grows with it.
inline constexpr std::size_t kRangesPerSession = 64;

// One profiling session on the current context: count() any number of ranges up to kRangesPerSession, then
// finish(). Throws CuptiError, with CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in its text where counters are
// reserved to root (NVreg_RestrictProfilingToAdminUsers). No other CUPTI user may be active; nothing is timed
// while a session exists.
class CounterSession {
  public:
    CounterSession();
    ~CounterSession();
    CounterSession(const CounterSession&) = delete;
    CounterSession& operator=(const CounterSession&) = delete;

    // Counts what `work` does on the GPU; waits for it.
    void count(const std::function<void()>& work);
    // Values of all ranges in the order of count().
    std::vector<MetricValues> finish();

  private:
    void configure();
    void close() noexcept;

    std::optional<MetricConfig> metrics_;
    CUpti_RangeProfiler_Object* profiler_ = nullptr;
    std::vector<std::uint8_t> counter_data_;
    std::size_t ranges_ = 0;
};

// Opens a session and counts one empty kernel. Empty when counters may be read, else why not.
std::string counters_refused();

}  // namespace kvsim::calibrate
