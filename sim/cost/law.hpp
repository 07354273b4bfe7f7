// The laws that are fitted: time of a launch as a function of what it asks of the GPU. Pure arithmetic, no
// I/O.
//
// Every law gives the time beyond the empty node, in microseconds. A launch of few blocks is bound by
// latency: what it has in flight is all that there is, and arrives together (Little's law). A large one is
// bound by bandwidth, or by the blocks that fit on the chip at once.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "kernels/linear_dispatch.hpp"
#include "kernels/traffic_linear.hpp"
#include "sim/cost/least_squares.hpp"

namespace kvsim {

// max(a, b) for serial = 0, a + b for serial = 1, smooth between: `serial` is the share of the shorter part
// that the longer one does not hide. Never below max(a, b).
inline double soft_max(double a, double b, double serial) {
    const double difference = a - b;
    return 0.5 * (a + b + std::sqrt(difference * difference + 4.0 * serial * a * b));
}

// Time to move bytes at a rate: GB/s are 1e3 bytes per microsecond.
inline double transfer_us(double bytes, double gb_per_s) {
    return bytes / (gb_per_s * 1e3);
}

// Copy and read of a contiguous buffer.
struct StreamLaw {
    double latency_us = 0.0;
    double serial = 0.0;
    double gb_per_s = 0.0;  // of a buffer without end

    double time_us(double bytes) const { return soft_max(latency_us, transfer_us(bytes, gb_per_s), serial); }
};

// The GPUs whose profiles there are: H100 and H200.
inline constexpr int kMultiprocessors = 132;
inline constexpr int kSharedBytes = 227 << 10;  // that a block can have
inline constexpr int kLongestRing = 128;        // that the kernels are tested with

// One launch of a linear-attention kernel.
struct LinearLaunch {
    LinearShape shape;
    Form form = Form::kRecurrent;
    LinearWork work;
    // Of forms with a ring; 0: not known. Then it is twice what a row reads, as where rows are spread over
    // all fills.
    int ring_capacity = 0;
};

// How a launch of the pipelined kernel lies on the GPU: units, tiles and stages of a block
// (linear_dispatch.hpp).
struct PipelineDemand {
    double whole_tiles = 0.0;   // of units that are whole heads
    double single_tiles = 0.0;  // units that are one tile
    double units = 0.0;
    double whole_ahead = 1.0;   // tiles in flight at once, of whole heads
    double single_ahead = 1.0;  // and of single tiles, each of which takes the stage of a head
    int token_tiles = 1;
};

// What such a launch asks for. Bytes; a head is one value head of one row.
struct LinearDemand {
    double read = 0.0;   // state, records, and q, k, v of the new tokens
    double write = 0.0;  // state, record, output
    double rows = 0.0;
    double heads = 0.0;
    double tokens_per_row = 1.0;   // new ones
    double records_per_row = 0.0;  // read, mean over rows
    double flush_rows = 0.0;
    double flush_share = 0.0;                            // of all rows
    double folds = 0.0;                                  // records that a row folds when it flushes, mean
    double row_state = 0.0;                              // state of one row
    BufferedKernel kernel = BufferedKernel::kPipelined;  // forms with a ring
    PipelineDemand pipeline;                             // of that kernel
};

inline PipelineDemand pipeline_demand(const LinearLaunch& l, double heads, int ring_capacity) {
    using namespace pipelined;
    PipelineDemand d;
    d.token_tiles = token_tiles(l.work.new_tokens / l.work.sequences);
    const Stages stages =
        stages_of(l.shape.state, l.shape.records, ring_capacity, d.token_tiles, kSharedBytes);
    const Shares shares = shares_of(static_cast<int>(heads), kMultiprocessors);
    const int single = shares.units - shares.whole * kMultiprocessors;
    d.whole_tiles = shares.whole * kTilesPerHead;
    d.single_tiles = std::ceil(single / static_cast<double>(kMultiprocessors));
    d.units = shares.whole + d.single_tiles;
    const int consumers = std::max(stages.consumers, 1);
    d.whole_ahead = std::min(consumers, stages.heads * kTilesPerHead);
    d.single_ahead = std::min(consumers, stages.heads);
    return d;
}

inline LinearDemand linear_demand(const LinearLaunch& l, const LinearTraffic& t) {
    const auto rows = static_cast<double>(l.work.sequences);
    LinearDemand d;
    d.read = static_cast<double>(t.read());
    d.write = static_cast<double>(t.write());
    d.rows = rows;
    d.heads = rows * l.shape.v_heads;
    d.tokens_per_row = static_cast<double>(l.work.new_tokens) / rows;
    d.records_per_row = static_cast<double>(l.work.buffered_tokens) / rows;
    d.flush_rows = static_cast<double>(l.work.flushes);
    d.flush_share = d.flush_rows / rows;
    d.folds = l.work.flushes > 0 ? static_cast<double>(l.work.flushed_tokens) / d.flush_rows : 0.0;
    d.row_state = static_cast<double>(state_bytes(l.shape));
    if (!has_ring(l.form)) return d;
    const double likely = std::ceil(2.0 * d.records_per_row + d.tokens_per_row);
    const int ring = l.ring_capacity > 0
                         ? l.ring_capacity
                         : static_cast<int>(std::min(likely, static_cast<double>(kLongestRing)));
    d.kernel = buffered_kernel(l.shape, l.form, l.work.sequences, ring);
    d.pipeline = pipeline_demand(l, d.heads, ring);
    return d;
}

inline double transfer_us(const LinearDemand& d, double read_gb_per_s, double write_gb_per_s) {
    return transfer_us(d.read, read_gb_per_s) + transfer_us(d.write, write_gb_per_s);
}

// Records go to the tensor cores in chunks. Of those that a row reads, all rows pay for at least one chunk,
// if they have any; beyond it, rows of a mean fill lie on either side of a step, so that there is none.
inline double record_chunks(const LinearDemand& d) {
    return std::max(std::min(d.records_per_row, 1.0), d.records_per_row / pipelined::kChunk);
}
// Of those that a row folds when it flushes.
inline double fold_chunks(const LinearDemand& d) {
    return std::ceil(d.folds / pipelined::kChunk);
}

// Reads run at the rate of the read probe; what writes cost beside them is the kernel's own.
struct RecurrentLaw {
    double latency_us = 0.0;
    double serial = 0.0;
    double write_gb_per_s = 0.0;

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        return soft_max(latency_us, transfer_us(d, read_gb_per_s, write_gb_per_s), serial);
    }
};

// Verification with stored states runs the recurrence token by token: a block is done after as many dependent
// steps.
struct VerifyStoredLaw : RecurrentLaw {
    double token_us = 0.0;  // per new token after the first

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        return soft_max(latency_us + token_us * (d.tokens_per_row - 1.0),
                        transfer_us(d, read_gb_per_s, write_gb_per_s), serial);
    }
};

// Many short blocks: the small kernel, and decode kernels of others. last block + soft_max(transfer -
// hidden, occupancy) + turns + bunching:
//   last block  from first byte to end. Each chunk of records adds dependent steps; where rows flush, further
//               ones, which fold it (and the new token's) into the state
//   transfer    reads at the rate of the read probe, writes at the kernel's own
//   occupancy   the same steps of all blocks, over the heads that are in flight at once; a fold takes longer
//               while a full chip of blocks does the same
//   hidden      the L2 takes in writes and passes them on while the memory would be idle, before the first
//               read and after the last: a share of the last block's time
//   turns       states written among rows that only read: the memory turns between reads and writes
//   bunching    rows that flush lie at random among the others, and what they add where they bunch is not
//               hidden: one standard deviation of a binomial count, times the write of one state
struct SmallLaw {
    double latency_us = 0.0;
    double record_us = 0.0;     // per chunk of records
    double fold_us = 0.0;       // per chunk, last block
    double full_fold_us = 0.0;  // per chunk, on a full chip
    double heads_in_flight = 0.0;
    double write_gb_per_s = 0.0;
    double turn_gb_per_s = 0.0;
    double serial = 0.0;
    double hidden = 0.0;

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        return time_us(d, read_gb_per_s, latency_us + record_us * record_chunks(d));
    }

  protected:
    double time_us(const LinearDemand& d, double read_gb_per_s, double plain_block) const {
        const double folds = fold_chunks(d);
        const double last_block = plain_block + fold_us * folds;
        const double write = transfer_us(d.write, write_gb_per_s);
        const double transfer =
            transfer_us(d.read, read_gb_per_s) + write - std::min(write, hidden * last_block);
        const double occupancy =
            d.heads / heads_in_flight * (plain_block + d.flush_share * full_fold_us * folds);
        const double plain_share = 1.0 - d.flush_share;
        const double turns = transfer_us(d.flush_rows * plain_share * d.row_state, turn_gb_per_s);
        const double bunching =
            std::sqrt(d.flush_rows * plain_share) * transfer_us(d.row_state, write_gb_per_s);
        return last_block + soft_max(transfer, occupancy, serial) + turns + bunching;
    }
};

// The same with several new tokens a row, which tensor cores take in fours: a block's time is a step function
// of them. The scalars of a token come one by one.
struct VerifySmallLaw : SmallLaw {
    double two_tiles = 0.0;    // of tokens: so many times as long as one
    double three_tiles = 0.0;  // which no longer fit in registers
    double token_us = 0.0;     // per new token after the first

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        const int tiles = d.pipeline.token_tiles;
        const double factor = tiles == 1 ? 1.0 : tiles == 2 ? two_tiles : three_tiles;
        return SmallLaw::time_us(
            d, read_gb_per_s,
            factor * (latency_us + record_us * record_chunks(d)) + token_us * (d.tokens_per_row - 1.0));
    }
};

// The pipelined kernel: start + last tile + soft_max(transfer, occupancy) + bunching:
//   start       launch, and the first bytes through the pipeline
//   a tile      keeps the multiprocessor busy for tile_us, chunk_us more for every 16 records that meet it,
//               and in a flush fold_us and fold_chunk_us for every 16 that are folded. Alone, it takes
//               `alone` times as long, since one warp does it
//   transfer    reads at a share of the rate of the read probe, writes at the kernel's own
//   occupancy   of a block: its tiles one after the other, while their instructions fill the multiprocessor;
//               or, with few of them in flight, each for load_us and its time alone. The warp that asks for
//               heads adds unit_us for every one
//   bunching    blocks that get more heads of rows that flush than others: standard deviation of the count of
//               a block, times the fold of a tile alone, times a fitted number
struct PipelinedLaw {
    double start_us = 0.0;
    double tile_us = 0.0;
    double chunk_us = 0.0;
    double fold_us = 0.0;
    double fold_chunk_us = 0.0;
    double alone = 0.0;
    double load_us = 0.0;
    double unit_us = 0.0;
    double read_share = 0.0;
    double write_gb_per_s = 0.0;
    double serial = 0.0;
    double bunching = 0.0;

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        return time_us(d, read_gb_per_s, tile_us + chunk_us * record_chunks(d));
    }

  protected:
    // plain: what a tile that does not flush keeps busy.
    double time_us(const LinearDemand& d, double read_gb_per_s, double plain) const {
        const PipelineDemand& p = d.pipeline;
        const double fold = d.flush_rows > 0.0 ? fold_us + fold_chunk_us * fold_chunks(d) : 0.0;
        const double busy = plain + d.flush_share * fold;
        const double hold = load_us + alone * busy;
        const double occupancy = p.whole_tiles * std::max(busy, hold / p.whole_ahead) +
                                 (p.single_tiles - 1.0) * std::max(busy, hold / p.single_ahead) +
                                 unit_us * p.units;
        const double transfer = transfer_us(d, read_share * read_gb_per_s, write_gb_per_s);
        const double flush_heads = d.flush_share * d.heads / kMultiprocessors;
        return start_us + alone * (plain + fold) + soft_max(transfer, occupancy, serial) +
               bunching * std::sqrt(flush_heads * (1.0 - d.flush_share)) * alone * fold;
    }
};

// The same with several new tokens a row, which tensor cores take in fours: a tile's time is a step function
// of them. The scalars of a token come one by one.
struct VerifyPipelinedLaw : PipelinedLaw {
    double two_tiles = 0.0;    // of tokens: so many times as long as one
    double three_tiles = 0.0;  // which no longer fit in registers
    double token_us = 0.0;     // per new token after the first

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        const int tiles = d.pipeline.token_tiles;
        const double factor = tiles == 1 ? 1.0 : tiles == 2 ? two_tiles : three_tiles;
        return PipelinedLaw::time_us(
            d, read_gb_per_s,
            factor * (tile_us + chunk_us * record_chunks(d)) + token_us * (d.tokens_per_row - 1.0));
    }
};

using LinearLaw =
    std::variant<RecurrentLaw, VerifyStoredLaw, SmallLaw, VerifySmallLaw, PipelinedLaw, VerifyPipelinedLaw>;

// Calls use(law) with a law of the type that prices `form` and, of forms with a ring, `kernel`; false where
// there is none.
template <class Use>
bool with_law_of(Form form, BufferedKernel kernel, Use&& use) {
    switch (form) {
        case Form::kRecurrent:
            use(RecurrentLaw{});
            return true;
        case Form::kVerifyStored:
            use(VerifyStoredLaw{});
            return true;
        case Form::kBuffered:
            if (kernel == BufferedKernel::kSmall) {
                use(SmallLaw{});
            } else {
                use(PipelinedLaw{});
            }
            return true;
        case Form::kVerifyBuffered:
            if (kernel == BufferedKernel::kSmall) {
                use(VerifySmallLaw{});
            } else {
                use(VerifyPipelinedLaw{});
            }
            return true;
        case Form::kDirect:
            return false;
    }
    return false;
}

// One parameter of a law: its name in fit.yaml, where it lives, and its bounds.
template <class Law>
struct LawParameter {
    std::string_view name;
    double Law::*member;
    BoundedParameter bounds;
    // Whether it depends on how records keep u: a law of one record format is that of the other but for
    // these.
    bool of_records = false;
};

// Bounds: latencies from a tenth of a microsecond, below which no kernel ends; rates up to what no memory of
// today reaches, so that a fit that needs more is caught by the physics check against its device.
inline constexpr BoundedParameter kLatencyBounds{2.0, 0.1, 50.0};
inline constexpr BoundedParameter kRateBounds{1e3, 10.0, 2e4};
inline constexpr BoundedParameter kSerialBounds{0.1, 1e-3, 1.0};
inline constexpr BoundedParameter kStepBounds{0.1, 1e-4, 5.0};

template <class Law>
inline constexpr int kLawParameters = 0;

// A law whose parameters are those numbers, in the order of the table.
template <class Law>
Law law_of(std::span<const double> values) {
    constexpr auto& table = kLawParameters<Law>;
    Law law;
    for (std::size_t i = 0; i < table.size(); ++i) law.*(table[i].member) = values[i];
    return law;
}

template <>
inline constexpr std::array kLawParameters<StreamLaw>{
    LawParameter<StreamLaw>{"latency_us", &StreamLaw::latency_us, kLatencyBounds},
    LawParameter<StreamLaw>{"serial", &StreamLaw::serial, kSerialBounds},
    LawParameter<StreamLaw>{"gb_per_s", &StreamLaw::gb_per_s, kRateBounds},
};

template <>
inline constexpr std::array kLawParameters<RecurrentLaw>{
    LawParameter<RecurrentLaw>{"latency_us", &RecurrentLaw::latency_us, kLatencyBounds},
    LawParameter<RecurrentLaw>{"serial", &RecurrentLaw::serial, kSerialBounds},
    LawParameter<RecurrentLaw>{"write_gb_per_s", &RecurrentLaw::write_gb_per_s, kRateBounds},
};

template <>
inline constexpr std::array kLawParameters<VerifyStoredLaw>{
    LawParameter<VerifyStoredLaw>{"latency_us", &VerifyStoredLaw::latency_us, kLatencyBounds},
    LawParameter<VerifyStoredLaw>{"serial", &VerifyStoredLaw::serial, kSerialBounds},
    LawParameter<VerifyStoredLaw>{"write_gb_per_s", &VerifyStoredLaw::write_gb_per_s, kRateBounds},
    LawParameter<VerifyStoredLaw>{"token_us", &VerifyStoredLaw::token_us, kStepBounds},
};

// Of either law of short blocks; that of verification has three more.
template <class Law>
inline constexpr std::array kSmallParameters{
    LawParameter<Law>{"latency_us", &Law::latency_us, kLatencyBounds},
    LawParameter<Law>{"record_us", &Law::record_us, kStepBounds, true},
    LawParameter<Law>{"fold_us", &Law::fold_us, kStepBounds, true},
    LawParameter<Law>{"full_fold_us", &Law::full_fold_us, kStepBounds, true},
    LawParameter<Law>{"heads_in_flight", &Law::heads_in_flight, {200.0, 1.0, 1e5}},
    LawParameter<Law>{"write_gb_per_s", &Law::write_gb_per_s, kRateBounds},
    LawParameter<Law>{"turn_gb_per_s", &Law::turn_gb_per_s, {5e3, 10.0, 1e6}},
    LawParameter<Law>{"serial", &Law::serial, kSerialBounds},
    LawParameter<Law>{"hidden", &Law::hidden, {0.3, 1e-3, 1.0}},
};

// Of either pipelined law; that of verification has three more.
template <class Law>
inline constexpr std::array kPipelinedParameters{
    LawParameter<Law>{"start_us", &Law::start_us, {4.0, 0.1, 50.0}},
    LawParameter<Law>{"tile_us", &Law::tile_us, kStepBounds, true},
    LawParameter<Law>{"chunk_us", &Law::chunk_us, kStepBounds, true},
    LawParameter<Law>{"fold_us", &Law::fold_us, kStepBounds, true},
    LawParameter<Law>{"fold_chunk_us", &Law::fold_chunk_us, kStepBounds, true},
    LawParameter<Law>{"alone", &Law::alone, {5.0, 1.0, 20.0}},
    LawParameter<Law>{"load_us", &Law::load_us, {1.0, 0.01, 10.0}},
    LawParameter<Law>{"unit_us", &Law::unit_us, {0.3, 1e-3, 5.0}},
    LawParameter<Law>{"read_share", &Law::read_share, {0.95, 0.1, 1.0}},
    LawParameter<Law>{"write_gb_per_s", &Law::write_gb_per_s, {4e3, 10.0, 2e4}},
    LawParameter<Law>{"serial", &Law::serial, kSerialBounds},
    LawParameter<Law>{"bunching", &Law::bunching, {0.5, 1e-3, 10.0}},
};

// What several new tokens add to the law of one.
template <class Law, std::size_t kBase>
constexpr auto with_token_parameters(const std::array<LawParameter<Law>, kBase>& base) {
    std::array<LawParameter<Law>, kBase + 3> all{};
    std::copy(base.begin(), base.end(), all.begin());
    all[kBase] = {"two_tiles", &Law::two_tiles, {1.6, 1.0, 10.0}};
    all[kBase + 1] = {"three_tiles", &Law::three_tiles, {4.0, 1.0, 20.0}};
    all[kBase + 2] = {"token_us", &Law::token_us, {0.01, 1e-4, 5.0}};
    return all;
}

template <>
inline constexpr std::array kLawParameters<SmallLaw> = kSmallParameters<SmallLaw>;

template <>
inline constexpr std::array kLawParameters<VerifySmallLaw> =
    with_token_parameters(kSmallParameters<VerifySmallLaw>);

template <>
inline constexpr std::array kLawParameters<PipelinedLaw> = kPipelinedParameters<PipelinedLaw>;

template <>
inline constexpr std::array kLawParameters<VerifyPipelinedLaw> =
    with_token_parameters(kPipelinedParameters<VerifyPipelinedLaw>);

}  // namespace kvsim
