// Law of the fused experts, and how many experts a batch touches.
#pragma once

#include "sim/cost/law.hpp"
#include "sim/cost/tables/gemm_law.hpp"
#include "sim/cost/tables/gpu.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

// floor + align + remote + activations + soft_max(tiles, weights):
//   weights      of the distinct experts, from DRAM unless they are in the L2
//   tiles        blocks of bm rows of one expert and bn outputs, in waves over the SMs, the best of a few
//   tiles:
//                an expert's last tile is partly empty, so many experts with few rows each cost whole tiles
//   activations  rows gathered, written between the products and summed: kernels of their own, one after
//   another.
//                With expert parallelism the routed rows of other ranks pass through them too, as zeros
//   align        sort of the pairs by expert and start of the blocks, until every expert has some
//   remote       look-up of the rank's own experts, with expert parallelism only
struct MoeLaw {
    using Work = MoeWork;
    static constexpr std::array<std::string_view, 5> kAxes{"tokens", "hidden", "intermediate", "experts",
                                                           "top_k"};

    double floor_us = 0.0;
    double align_us = 0.0;
    double remote_us = 0.0;
    double dram_gb_per_s = 0.0;
    double l2_share = 0.0;
    double activation_gb_per_s = 0.0;
    double peak_share = 0.0;
    double sm_load_gb_per_s = 0.0;
    double prologue_us = 0.0;  // per wave
    double serial = 0.0;

    LawTime time(const MoeWork& w, const Gpu& gpu) const;
    static Demand demand(const MoeWork& w);
    static std::array<double, 5> axes(const MoeWork& w) {
        return {static_cast<double>(w.tokens), static_cast<double>(w.shape.hidden),
                static_cast<double>(w.shape.intermediate), static_cast<double>(w.shape.experts),
                static_cast<double>(w.shape.top_k)};
    }

  private:
    double tiles_us(const MoeWork& w, const Gpu& gpu) const;
};

template <>
inline constexpr std::array kLawParameters<MoeLaw>{
    LawParameter<MoeLaw>{"floor_us", &MoeLaw::floor_us, {15.0, 0.3, 300.0}},
    LawParameter<MoeLaw>{"align_us", &MoeLaw::align_us, {8.0, 1e-3, 100.0}},
    LawParameter<MoeLaw>{"remote_us", &MoeLaw::remote_us, {8.0, 1e-3, 50.0}},
    LawParameter<MoeLaw>{"dram_gb_per_s", &MoeLaw::dram_gb_per_s, kDramBounds},
    LawParameter<MoeLaw>{"l2_share", &MoeLaw::l2_share, kShareBounds},
    LawParameter<MoeLaw>{"activation_gb_per_s", &MoeLaw::activation_gb_per_s, kCacheBounds},
    LawParameter<MoeLaw>{"peak_share", &MoeLaw::peak_share, {0.7, 0.05, 1.0}},
    LawParameter<MoeLaw>{"sm_load_gb_per_s", &MoeLaw::sm_load_gb_per_s, {150.0, 1.0, 1e3}},
    LawParameter<MoeLaw>{"prologue_us", &MoeLaw::prologue_us, {0.5, 1e-3, 50.0}},
    LawParameter<MoeLaw>{"serial", &MoeLaw::serial, kSoftBounds},
};

// Experts that M tokens touch when popularity follows a power law: E experts at the quantiles (i + 1/2)/E of
// a density proportional to x^-alpha on [1, E]; each token draws expert i with probability p_i = min(1, k x_i
// / sum x), independently: sum of 1 - (1 - p_i)^M. alpha = 0 is not uniform popularity but a uniform density;
// uniform routing is expected_distinct_experts(shape, tokens). Requires alpha >= 0.
double expected_distinct_experts(const MoeShape& shape, std::int64_t tokens, double alpha);

}  // namespace kvsim
