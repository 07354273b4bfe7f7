// Law of a library's matrix product.
#pragma once

#include "sim/cost/law.hpp"
#include "sim/cost/tables/gpu.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

// floor + quantise + soft_max(tiles, memory):
//   tiles     thread blocks of bm x bn outputs in waves over the SMs: K/64 steps, each bound by the tensor
//   cores or by
//             the operands' way from L2 to SM, and a prologue. bf16 (cuBLAS): the best of the tiles and of
//             the splits of K that libraries ship; a split adds a reduction, its partial sums going through
//             the L2. fp8 (CUTLASS): no splits, and on wide tensor cores a tile that depends on m alone
//   memory    operands that are not in the L2 from DRAM, the rest from L2
//   quantise  fp8: a launch before, within floor, reads bf16 activations and writes fp8 ones
struct GemmLaw {
    using Work = GemmWork;
    static constexpr std::array<std::string_view, 3> kAxes{"m", "n", "k"};

    double floor_us = 0.0;
    double dram_gb_per_s = 0.0;
    double l2_over_dram = 0.0;       // rate
    double l2_share = 0.0;           // of the L2 that keeps operands between launches
    double peak_share = 0.0;         // of the peak rate that a full wave reaches
    double sustained_share = 1.0;    // of that, what long launches reach at the power limit
    double throttle_us = 1e6;        // length from which a launch is a long one
    double sm_load_gb_per_s = 0.0;   // operands into one SM
    double sm_store_gb_per_s = 0.0;  // outputs out of one SM, after the last step
    double prologue_us = 0.0;        // per wave
    double serial = 0.0;
    double split_us = 0.0;

    LawTime time(const GemmWork& w, const Gpu& gpu) const;
    static Demand demand(const GemmWork& w);
    static std::array<double, 3> axes(const GemmWork& w) {
        return {static_cast<double>(w.m), static_cast<double>(w.n), static_cast<double>(w.k)};
    }

  private:
    double tiles_us(const GemmWork& w, const Gpu& gpu) const;
};

inline constexpr BoundedParameter kFloorBounds{3.0, 0.3, 100.0};
inline constexpr BoundedParameter kDramBounds{2e3, 10.0, 2e4};
inline constexpr BoundedParameter kCacheBounds{4e3, 10.0, 2e4};
inline constexpr BoundedParameter kL2Bounds{2.0, 1.0, 20.0};  // over the DRAM's rate
inline constexpr BoundedParameter kShareBounds{0.7, 0.2, 1.0};
inline constexpr BoundedParameter kSoftBounds{0.1, 1e-3, 1.0};

template <>
inline constexpr std::array kLawParameters<GemmLaw>{
    LawParameter<GemmLaw>{"floor_us", &GemmLaw::floor_us, kFloorBounds},
    LawParameter<GemmLaw>{"dram_gb_per_s", &GemmLaw::dram_gb_per_s, kDramBounds},
    LawParameter<GemmLaw>{"l2_over_dram", &GemmLaw::l2_over_dram, kL2Bounds},
    LawParameter<GemmLaw>{"l2_share", &GemmLaw::l2_share, kShareBounds},
    LawParameter<GemmLaw>{"peak_share", &GemmLaw::peak_share, {0.8, 0.05, 1.0}},
    LawParameter<GemmLaw>{"sustained_share", &GemmLaw::sustained_share, {0.9, 0.5, 1.0}},
    LawParameter<GemmLaw>{"throttle_us", &GemmLaw::throttle_us, {500.0, 10.0, 1e5}},
    LawParameter<GemmLaw>{"sm_load_gb_per_s", &GemmLaw::sm_load_gb_per_s, {100.0, 1.0, 1e3}},
    LawParameter<GemmLaw>{"sm_store_gb_per_s", &GemmLaw::sm_store_gb_per_s, {50.0, 1.0, 1e4}},
    LawParameter<GemmLaw>{"prologue_us", &GemmLaw::prologue_us, {0.5, 1e-3, 20.0}},
    LawParameter<GemmLaw>{"serial", &GemmLaw::serial, kSoftBounds},
    LawParameter<GemmLaw>{"split_us", &GemmLaw::split_us, {1.0, 1e-2, 20.0}},
};

}  // namespace kvsim
