// Laws of FlashAttention: generation 3 on GPUs with wide tensor-core tiles, generation 2 before.
#pragma once

#include "sim/cost/law.hpp"
#include "sim/cost/tables/gemm_law.hpp"
#include "sim/cost/tables/gpu.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

// floor + sequences + cold + combine + copy + later waves + soft_max(memory, chain):
//   tiles        one per sequence, KV head and 64 query heads of its group; when they leave SMs idle, the
//   context is
//                split over blocks, and a second kernel combines. Generation 2 does not split a group of one
//   chain        blocks of 128 keys one after the other: the latency of a lone block, in all waves of tiles
//   later waves  every wave after the first starts its tiles anew
//   cold         a first access that misses the L2
//   copy         generation 2 swaps the heads of a group into rows through a copy
struct AttentionDecodeLaw {
    using Work = AttentionDecodeWork;
    static constexpr std::array<std::string_view, 5> kAxes{"sequences", "context", "q_heads", "kv_heads",
                                                           "head_dim"};

    double floor_us = 0.0;
    double sequence_us = 0.0;  // per sequence
    double cold_us = 0.0;
    double kernel_us = 0.0;  // of each kernel beside the attention: combine, copy
    double tile_us = 0.0;    // per later wave and 128 head dimensions
    double block_us = 0.0;   // per block of 128 keys and 128 head dimensions
    double dram_gb_per_s = 0.0;
    double l2_over_dram = 0.0;  // rate
    double l2_share = 0.0;
    double serial = 0.0;

    LawTime time(const AttentionDecodeWork& w, const Gpu& gpu) const;
    static Demand demand(const AttentionDecodeWork& w);
    static std::array<double, 5> axes(const AttentionDecodeWork& w);
};

template <>
inline constexpr std::array kLawParameters<AttentionDecodeLaw>{
    LawParameter<AttentionDecodeLaw>{"floor_us", &AttentionDecodeLaw::floor_us, {10.0, 0.3, 100.0}},
    LawParameter<AttentionDecodeLaw>{"sequence_us", &AttentionDecodeLaw::sequence_us, {0.02, 1e-4, 5.0}},
    LawParameter<AttentionDecodeLaw>{"cold_us", &AttentionDecodeLaw::cold_us, {3.0, 1e-3, 50.0}},
    LawParameter<AttentionDecodeLaw>{"kernel_us", &AttentionDecodeLaw::kernel_us, {1.5, 1e-3, 50.0}},
    LawParameter<AttentionDecodeLaw>{"tile_us", &AttentionDecodeLaw::tile_us, {2.0, 1e-3, 50.0}},
    LawParameter<AttentionDecodeLaw>{"block_us", &AttentionDecodeLaw::block_us, {0.3, 1e-3, 50.0}},
    LawParameter<AttentionDecodeLaw>{"dram_gb_per_s", &AttentionDecodeLaw::dram_gb_per_s, kDramBounds},
    LawParameter<AttentionDecodeLaw>{"l2_over_dram", &AttentionDecodeLaw::l2_over_dram, kL2Bounds},
    LawParameter<AttentionDecodeLaw>{"l2_share", &AttentionDecodeLaw::l2_share, kShareBounds},
    LawParameter<AttentionDecodeLaw>{"serial", &AttentionDecodeLaw::serial, {0.05, 1e-3, 1.0}},
};

// floor + memory + soft_max(all tiles, longest tile):
//   all tiles     64 queries of a head each, spread over the SMs: per block of 128 keys two products at a
//   share of
//                 the peak, a softmax whose time does not depend on the head dimension, and a start per tile
//   longest tile  the last queries of a prompt walk all its keys, alone in their SM
struct AttentionPrefillLaw {
    using Work = AttentionPrefillWork;
    static constexpr std::array<std::string_view, 6> kAxes{"sequences", "tokens",   "cached",
                                                           "q_heads",   "kv_heads", "head_dim"};

    double floor_us = 0.0;
    double peak_share = 0.0;
    double softmax_ns = 0.0;     // of an SM per 1,000 query-key pairs
    double tile_us = 0.0;        // of an SM per tile and 128 head dimensions
    double lone_block_us = 0.0;  // per block of 128 keys, softmax
    double lone_width_us = 0.0;  // per block of 128 keys and 128 head dimensions, products
    double serial = 0.0;
    double gb_per_s = 0.0;

    LawTime time(const AttentionPrefillWork& w, const Gpu& gpu) const;
    static Demand demand(const AttentionPrefillWork& w);
    static std::array<double, 6> axes(const AttentionPrefillWork& w);
};

template <>
inline constexpr std::array kLawParameters<AttentionPrefillLaw>{
    LawParameter<AttentionPrefillLaw>{"floor_us", &AttentionPrefillLaw::floor_us, {10.0, 0.3, 100.0}},
    LawParameter<AttentionPrefillLaw>{"peak_share", &AttentionPrefillLaw::peak_share, {0.7, 0.05, 1.0}},
    LawParameter<AttentionPrefillLaw>{"softmax_ns", &AttentionPrefillLaw::softmax_ns, {5.0, 1e-3, 1e3}},
    LawParameter<AttentionPrefillLaw>{"tile_us", &AttentionPrefillLaw::tile_us, {1.0, 1e-3, 100.0}},
    LawParameter<AttentionPrefillLaw>{
        "lone_block_us", &AttentionPrefillLaw::lone_block_us, {0.2, 1e-3, 50.0}},
    LawParameter<AttentionPrefillLaw>{
        "lone_width_us", &AttentionPrefillLaw::lone_width_us, {1.0, 1e-3, 50.0}},
    LawParameter<AttentionPrefillLaw>{"serial", &AttentionPrefillLaw::serial, kSoftBounds},
    LawParameter<AttentionPrefillLaw>{"gb_per_s", &AttentionPrefillLaw::gb_per_s, kDramBounds},
};

}  // namespace kvsim
