// What `kvcalib sustained` runs: matrix products that keep the GPU busy for as long as a prefill does, and
// the same ones alone after a pause. Pure host code, no CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/clock_stamp.hpp"
#include "sim/base/units.hpp"

namespace kvsim::calibrate {

// bf16 with fp32 sums: activations [m, k] times weights [n, k], output [m, n].
struct Product {
    int m = 0, n = 0, k = 0;

    Flops flops() const;
    friend bool operator==(const Product&, const Product&) = default;
};

// kNormal: activations N(0, 1), weights N(0, 1/k), so that outputs are N(0, 1) too. kZeros switches next to
// no transistors: what then becomes faster was held down by power.
enum class OperandData : std::uint8_t { kNormal, kZeros };
inline constexpr std::array<std::string_view, 2> kOperandDataNames{"normal", "zeros"};

// idle, then copies in memory (none if zero), then products without a pause between.
struct SustainedLoad {
    std::string name;               // of the chain
    std::vector<Product> products;  // a round, run again and again; every one has weights of its own
    OperandData data = OperandData::kNormal;
    Time idle, memory, busy;
};

struct SustainedPlan {
    Time slice;  // work between two readings of the clocks
    std::vector<SustainedLoad> loads;
    std::vector<Product> bursts;  // alone: each of `burst_calls` calls after `burst_idle`, with a cold L2
    Time burst_idle;
    int burst_calls = 0;
};

// A file of configs/calibration with `schema: kvsim/sustained/1`. Throws ConfigError with every mistake.
SustainedPlan load_sustained_plan(const std::string& file);

// Products between two readings: `count` from number `first` of the endless repetition of a round on.
struct Slice {
    std::size_t first = 0, count = 0;
    Flops flops;
};
// Slices of at least `least` each (every one ends with the product that reaches it), as many as reach
// `total`.
std::vector<Slice> cut_slices(std::span<const Product> round, Flops least, Flops total);

// Median frequency of the multiprocessors that both readings saw, in MHz; empty when they saw none.
std::optional<double> sm_mhz(std::span<const ClockStamp> begin, std::span<const ClockStamp> end);

}  // namespace kvsim::calibrate
