// Laws of kernels that mainly move bytes: decode of linear layers, convolution, chunk prefill, all-reduce.
#pragma once

#include <optional>

#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_linear_layer.hpp"
#include "sim/cost/law.hpp"
#include "sim/cost/tables/gemm_law.hpp"
#include "sim/cost/tables/gpu.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

// floor + soft_max(latency, bytes): what every launch costs, and bytes that at first arrive all together. For
// one token per sequence; Work is PackedDecodeWork or ConvWork.
template <class WorkT>
struct DecodeStreamLaw {
    using Work = WorkT;

    double floor_us = 0.0;
    double latency_us = 0.0;
    double dram_gb_per_s = 0.0;
    double l2_over_dram = 0.0;  // rate
    double l2_share = 0.0;
    double serial = 0.0;

    static constexpr std::array<std::string_view, 2> kAxes{"bytes", "sequences"};
    // Everything that a launch moves; `kept` of it is the same in the next one (the state, read and written).
    struct Bytes {
        double moved, kept;
    };
    static Bytes bytes(const Work& w);

    LawTime time(const Work& w, const Gpu& gpu) const { return time(bytes(w), w.rotation, gpu); }
    LawTime time(const Bytes& b, Rotation rotation, const Gpu& gpu) const {
        const double resident = resident_share(rotation, b.kept, 0.0, l2_share * gpu.l2_bytes);
        const double memory = cached_transfer_us(b.moved, resident, dram_gb_per_s, l2_over_dram);
        return law_time(floor_us + soft_max(latency_us, memory, serial), floor_us + latency_us, memory, 0.0);
    }
    static Demand demand(const Work& w) {
        return {w.rotation == kColdL2 ? bytes(w).moved : 0.0, 0.0, MatrixFormat::kBf16};
    }
    static std::array<double, 2> axes(const Work& w) {
        return {bytes(w).moved, static_cast<double>(w.sequences)};
    }
};

using PackedDecodeLaw = DecodeStreamLaw<PackedDecodeWork>;
using ConvUpdateLaw = DecodeStreamLaw<ConvWork>;

template <>
inline PackedDecodeLaw::Bytes PackedDecodeLaw::bytes(const PackedDecodeWork& w) {
    const LinearWork work{w.sequences, w.sequences, 0, 0, 0};
    const LinearTraffic t = linear_traffic(w.shape, Form::kRecurrent, work);
    return {static_cast<double>(t.total()), static_cast<double>(w.sequences * state_bytes(w.shape))};
}

inline PackedDecodeLaw::Bytes bytes_of(const LinearBytesWork& w) {
    const LinearTraffic t = linear_traffic(w.shape, w.form, w.work);
    const std::int64_t ring = has_ring(w.form) ? w.buffer_length * record_bytes(w.shape) : 0;
    return {static_cast<double>(t.total()),
            static_cast<double>(w.work.sequences * (state_bytes(w.shape) + ring))};
}

template <>
inline ConvUpdateLaw::Bytes ConvUpdateLaw::bytes(const ConvWork& w) {
    const auto moved = static_cast<double>(conv_bytes(w));
    return {moved, moved};
}

template <class WorkT>
inline constexpr std::array kLawParameters<DecodeStreamLaw<WorkT>>{
    LawParameter<DecodeStreamLaw<WorkT>>{"floor_us", &DecodeStreamLaw<WorkT>::floor_us, {2.0, 0.3, 20.0}},
    LawParameter<DecodeStreamLaw<WorkT>>{
        "latency_us", &DecodeStreamLaw<WorkT>::latency_us, {0.8, 1e-2, 20.0}},
    LawParameter<DecodeStreamLaw<WorkT>>{"dram_gb_per_s", &DecodeStreamLaw<WorkT>::dram_gb_per_s,
                                         kDramBounds},
    LawParameter<DecodeStreamLaw<WorkT>>{"l2_over_dram", &DecodeStreamLaw<WorkT>::l2_over_dram, kL2Bounds},
    LawParameter<DecodeStreamLaw<WorkT>>{"l2_share", &DecodeStreamLaw<WorkT>::l2_share, {0.8, 0.2, 1.2}},
    LawParameter<DecodeStreamLaw<WorkT>>{"serial", &DecodeStreamLaw<WorkT>::serial, {0.3, 1e-3, 1.0}},
};

// floor + steps + soft_max(blocks, bytes): a block takes 8 tokens of 256 channels one after the other.
struct ConvPrefillLaw {
    using Work = ConvWork;
    static constexpr std::array<std::string_view, 3> kAxes{"tokens", "channels", "sequences"};

    double floor_us = 0.0;
    double token_us = 0.0;  // per token of a block
    double block_us = 0.0;  // of an SM
    double dram_gb_per_s = 0.0;
    double l2_over_dram = 0.0;  // rate
    double l2_share = 0.0;
    double serial = 0.0;

    LawTime time(const ConvWork& w, const Gpu& gpu) const;
    static Demand demand(const ConvWork&) { return {}; }
    static std::array<double, 3> axes(const ConvWork& w) {
        return {static_cast<double>(w.tokens), static_cast<double>(w.channels),
                static_cast<double>(w.sequences)};
    }
};

template <>
inline constexpr std::array kLawParameters<ConvPrefillLaw>{
    LawParameter<ConvPrefillLaw>{"floor_us", &ConvPrefillLaw::floor_us, {2.0, 0.3, 20.0}},
    LawParameter<ConvPrefillLaw>{"token_us", &ConvPrefillLaw::token_us, {0.2, 1e-3, 20.0}},
    LawParameter<ConvPrefillLaw>{"block_us", &ConvPrefillLaw::block_us, {0.05, 1e-3, 20.0}},
    LawParameter<ConvPrefillLaw>{"dram_gb_per_s", &ConvPrefillLaw::dram_gb_per_s, kDramBounds},
    LawParameter<ConvPrefillLaw>{"l2_over_dram", &ConvPrefillLaw::l2_over_dram, kL2Bounds},
    LawParameter<ConvPrefillLaw>{"l2_share", &ConvPrefillLaw::l2_share, {0.8, 0.2, 1.2}},
    LawParameter<ConvPrefillLaw>{"serial", &ConvPrefillLaw::serial, kSoftBounds},
};

// FlashInfer's chunk kernel, one block per sequence and value head, serial over chunks of 64 tokens:
// floor + waves x (block + chunk x chunks of the longest sequence).
struct FusedChunkLaw {
    using Work = LinearPrefillWork;
    static constexpr std::array<std::string_view, 3> kAxes{"sequences", "longest", "v_heads"};

    double floor_us = 0.0;
    double block_us = 0.0;
    double chunk_us = 0.0;

    LawTime time(const LinearPrefillWork& w, const Gpu& gpu) const;
    static Demand demand(const LinearPrefillWork& w);
    static std::array<double, 3> axes(const LinearPrefillWork& w) {
        return {static_cast<double>(w.sequences), static_cast<double>(w.longest),
                static_cast<double>(w.shape.v_heads)};
    }
};

template <>
inline constexpr std::array kLawParameters<FusedChunkLaw>{
    LawParameter<FusedChunkLaw>{"floor_us", &FusedChunkLaw::floor_us, {1.0, 0.1, 100.0}},
    LawParameter<FusedChunkLaw>{"block_us", &FusedChunkLaw::block_us, {8.0, 0.1, 100.0}},
    LawParameter<FusedChunkLaw>{"chunk_us", &FusedChunkLaw::chunk_us, {3.0, 0.01, 100.0}},
};

// Triton's chunk kernels, in stages that pass their results through memory:
// floor + first chunk + states + soft_max(scan, bytes).
struct StagedChunkLaw {
    using Work = LinearPrefillWork;
    static constexpr std::array<std::string_view, 3> kAxes{"sequences", "longest", "v_heads"};

    double floor_us = 0.0;
    double token_us = 0.0;          // per token of a sequence's first chunk: the triangular solve
    double chunk_us = 0.0;          // of the scan, per chunk of the longest sequence
    double blocks_in_flight = 0.0;  // of the scan, per SM
    double state_gb_per_s = 0.0;
    double dram_gb_per_s = 0.0;
    double l2_over_dram = 0.0;  // rate
    double l2_share = 0.0;      // above 1: a stage's working set is a part of all bytes
    double serial = 0.0;

    LawTime time(const LinearPrefillWork& w, const Gpu& gpu) const;
    static Demand demand(const LinearPrefillWork& w) { return FusedChunkLaw::demand(w); }
    static std::array<double, 3> axes(const LinearPrefillWork& w) { return FusedChunkLaw::axes(w); }
};

template <>
inline constexpr std::array kLawParameters<StagedChunkLaw>{
    LawParameter<StagedChunkLaw>{"floor_us", &StagedChunkLaw::floor_us, {15.0, 0.1, 100.0}},
    LawParameter<StagedChunkLaw>{"token_us", &StagedChunkLaw::token_us, {0.2, 1e-3, 10.0}},
    LawParameter<StagedChunkLaw>{"chunk_us", &StagedChunkLaw::chunk_us, {2.0, 0.01, 100.0}},
    LawParameter<StagedChunkLaw>{"blocks_in_flight", &StagedChunkLaw::blocks_in_flight, {8.0, 1.0, 32.0}},
    LawParameter<StagedChunkLaw>{"state_gb_per_s", &StagedChunkLaw::state_gb_per_s, kCacheBounds},
    LawParameter<StagedChunkLaw>{"dram_gb_per_s", &StagedChunkLaw::dram_gb_per_s, kDramBounds},
    LawParameter<StagedChunkLaw>{"l2_over_dram", &StagedChunkLaw::l2_over_dram, kL2Bounds},
    LawParameter<StagedChunkLaw>{"l2_share", &StagedChunkLaw::l2_share, {1.5, 0.2, 5.0}},
    LawParameter<StagedChunkLaw>{"serial", &StagedChunkLaw::serial, kSoftBounds},
};

struct AllReduceWork {
    double bytes = 0.0;
    int ranks = 0;
};

// floor + ranks + the better of two ways: every rank reads all of every other (one step), or each reduces its
// part and hands it round (two steps, 2 (n - 1)/n of the message). Rates are one GPU's, per direction.
struct AllReduceLaw {
    using Work = AllReduceWork;
    static constexpr std::array<std::string_view, 2> kAxes{"bytes", "ranks"};

    double floor_us = 0.0;
    double rank_us = 0.0;
    double one_step_gb_per_s = 0.0;
    double two_step_us = 0.0;
    double two_step_gb_per_s = 0.0;

    LawTime time(const AllReduceWork& w, const Gpu& gpu) const;
    static Demand demand(const AllReduceWork&) { return {}; }
    static std::array<double, 2> axes(const AllReduceWork& w) {
        return {w.bytes, static_cast<double>(w.ranks)};
    }
};

template <>
inline constexpr std::array kLawParameters<AllReduceLaw>{
    LawParameter<AllReduceLaw>{"floor_us", &AllReduceLaw::floor_us, {4.0, 0.1, 100.0}},
    LawParameter<AllReduceLaw>{"rank_us", &AllReduceLaw::rank_us, {0.1, 1e-3, 10.0}},
    LawParameter<AllReduceLaw>{"one_step_gb_per_s", &AllReduceLaw::one_step_gb_per_s, {300.0, 1.0, 2e3}},
    LawParameter<AllReduceLaw>{"two_step_us", &AllReduceLaw::two_step_us, {4.0, 0.1, 100.0}},
    LawParameter<AllReduceLaw>{"two_step_gb_per_s", &AllReduceLaw::two_step_gb_per_s, {300.0, 1.0, 2e3}},
};

}  // namespace kvsim
