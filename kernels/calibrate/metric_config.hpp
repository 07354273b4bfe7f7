// Which hardware counters are read, and how CUPTI schedules them. Works without a GPU.
#pragma once

#include <cupti_profiler_host.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/calibrate/cupti_support.hpp"
#include "sim/base/units.hpp"

namespace kvsim::calibrate {

// In the order of MetricValues. Values are matched by these names, never by position in an image.
inline constexpr std::array<const char*, 3> kMetricNames{"dram__bytes_read.sum", "dram__bytes_write.sum",
                                                         "lts__t_bytes.sum"};

// Sums over a range.
struct MetricValues {
    Bytes dram_read, dram_write;
    Bytes l2;  // all requests to the L2; a check that a range saw its launches
};

std::vector<std::string> supported_chips();

// The schedule of kMetricNames on one chip. Throws CuptiError for an unknown chip or metric.
class MetricConfig {
  public:
    explicit MetricConfig(const std::string& chip, std::span<const char* const> metrics = kMetricNames);
    ~MetricConfig();
    MetricConfig(const MetricConfig&) = delete;
    MetricConfig& operator=(const MetricConfig&) = delete;

    std::span<const std::uint8_t> image() const { return image_; }
    // Runs of the work that the counters need.
    std::size_t passes() const { return passes_; }
    // Values of range `index` of a decoded counter image.
    MetricValues evaluate(std::span<const std::uint8_t> counter_data, std::size_t index) const;

  private:
    void configure(const std::string& chip, std::span<const char* const> metrics);

    CUpti_Profiler_Host_Object* host_ = nullptr;
    std::vector<std::uint8_t> image_;
    std::size_t passes_ = 0;
};

}  // namespace kvsim::calibrate
