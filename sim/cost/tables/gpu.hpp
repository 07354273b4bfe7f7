// A GPU as the laws of published kernels see it, and the terms that they share. Times in microseconds, bytes
// and FLOPs as doubles, rates per microsecond.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "sim/cost/device.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

struct Gpu {
    double sms = 1.0;
    double l2_bytes = 0.0;
    double peak_bytes = 0.0;       // per us
    double peak_flops_bf16 = 0.0;  // per us
    double peak_flops_fp8 = 0.0;   // per us; 0: no such unit
    double peak_flops_fp4 = 0.0;   // likewise
    // Tensor cores that take 64 rows at once (wgmma, compute capability 9 and later). Libraries ship other
    // tiles for them, and FlashAttention another generation.
    bool wide_tiles = false;

    // Without a unit for its format, weights are widened to bf16 on their way to the tensor cores.
    double peak_flops(MatrixFormat f) const {
        const double own = f == MatrixFormat::kFp4    ? peak_flops_fp4
                           : f == MatrixFormat::kBf16 ? peak_flops_bf16
                                                      : peak_flops_fp8;
        return own > 0.0 ? own : peak_flops_bf16;
    }
};

inline Gpu gpu_of(const DeviceSpec& d) {
    return {static_cast<double>(d.sm_count), static_cast<double>(d.l2.value()),
            d.peak_bandwidth.value() * 1e-6, d.peak_bf16.value() * 1e-6,
            d.peak_fp8.value() * 1e-6,       d.peak_fp4.value() * 1e-6,
            d.compute_capability >= 9.0};
}

// What the larger part of a time is.
enum class Regime : std::uint8_t { kLatency, kMemory, kCompute };
inline constexpr int kRegimeCount = 3;
inline constexpr std::array<std::string_view, kRegimeCount> kRegimeNames{"latency", "memory", "compute"};

struct LawTime {
    double us = 0.0;
    Regime regime = Regime::kLatency;
};

inline LawTime law_time(double us, double latency, double memory, double compute) {
    const Regime busy = compute > memory ? Regime::kCompute : Regime::kMemory;
    return {us, latency > std::max(memory, compute) ? Regime::kLatency : busy};
}

// What a launch must at least move and compute: no law may be faster than the device's peaks allow. Bytes
// that must come from DRAM when the L2 is cold.
struct Demand {
    double dram_bytes = 0.0;
    double flops = 0.0;
    MatrixFormat format = MatrixFormat::kBf16;
};

// Share of a working set that stays in a cache between launches that sweep it in the same order: all of it as
// long as it fits, then soon nothing (lines are evicted just before they are used again). In the tables it is
// gone at a quarter more than what fits.
inline double resident_share(double working_set, double cache_bytes) {
    return std::clamp(5.0 - 4.0 * working_set / cache_bytes, 0.0, 1.0);
}

// Of operands of which launches rotate over `rotation` sets, while `other` bytes pass through.
inline double resident_share(Rotation rotation, double set_bytes, double other_bytes, double cache_bytes) {
    return rotation == kColdL2
               ? 0.0
               : resident_share(static_cast<double>(rotation) * set_bytes + other_bytes, cache_bytes);
}

// Bytes at the DRAM's rate, those of the resident share at the L2's, which is so many times higher.
inline double cached_transfer_us(double bytes, double resident, double dram_gb_per_s, double l2_over_dram) {
    return bytes * ((1.0 - resident) + resident / l2_over_dram) / (dram_gb_per_s * 1e3);
}

}  // namespace kvsim
