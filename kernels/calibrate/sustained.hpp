// `kvcalib sustained`: what clocks and rates do while matrix products run for as long as a prefill.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/calibrate/device_info.hpp"
#include "kernels/calibrate/sustained_plan.hpp"

namespace kvsim::calibrate {

enum class LoadPhase : std::uint8_t { kMemory, kProducts };
inline constexpr std::array<std::string_view, 2> kLoadPhaseNames{"memory", "products"};

// Times of a load count from the first of its products: negative before it.
struct SliceRow {
    LoadPhase phase = LoadPhase::kProducts;
    double start_ms = 0.0;
    double time_us = 0.0;  // between two readings of the clocks, these left out
    std::int64_t launches = 0;
    Flops flops;                   // of products
    Bytes bytes;                   // read and written by copies
    std::optional<double> sm_mhz;  // mean over the slice, median of the multiprocessors
};

struct ClockRow {
    double at_ms = 0.0;
    Clocks clocks;
    Power power;
};

struct LoadRun {
    std::vector<SliceRow> slices;
    std::vector<ClockRow> clocks;
};

struct BurstRow {
    Product product;
    int call = 0;
    double time_us = 0.0;
    std::optional<double> sm_mhz;
};

struct SustainedMeasurement {
    std::vector<LoadRun> loads;  // in the order of the plan
    std::vector<BurstRow> bursts;
    std::optional<double> power_limit_watts;
    std::string cublaslt;  // version of cuBLASLt
};

// Verifies every round of products before it is timed. Progress on stderr. Throws CudaError;
// std::runtime_error without cuBLASLt or NVML, and when an output is wrong.
SustainedMeasurement measure_sustained(const SustainedPlan& plan, const DeviceInfo& device);

}  // namespace kvsim::calibrate
