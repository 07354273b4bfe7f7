// The laws that are fitted: time of a launch as a function of what it asks of the GPU. Pure arithmetic, no
// I/O.
//
// Every law gives the time beyond the empty node, in microseconds. A launch of few blocks is bound by
// latency: what it has in flight is all that there is, and arrives together (Little's law). A large one is
// bound by bandwidth, or by the blocks that fit on the chip at once.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <variant>

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

// One launch of a linear-attention kernel.
struct LinearLaunch {
    LinearShape shape;
    Form form = Form::kRecurrent;
    LinearWork work;
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
    double flush_share = 0.0;  // of all rows
    double folds = 0.0;        // records that a row folds when it flushes, mean
    double row_state = 0.0;    // state of one row
};

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
    if (l.work.flushes > 0) d.folds = static_cast<double>(l.work.flushed_tokens) / d.flush_rows;
    d.row_state = static_cast<double>(state_bytes(l.shape));
    return d;
}

inline double transfer_us(const LinearDemand& d, double read_gb_per_s, double write_gb_per_s) {
    return transfer_us(d.read, read_gb_per_s) + transfer_us(d.write, write_gb_per_s);
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

// last block + soft_max(transfer, occupancy) + turns + bunching:
//   last block  from first byte to end. Each record adds a dependent step; where rows flush, a second one,
//               which folds it (and the new token's) into the state
//   transfer    reads at the rate of the read probe, writes at the kernel's own
//   occupancy   the same steps of all blocks, over the heads that are in flight at once; a fold takes longer
//               while a full chip of blocks does the same
//   turns       states written among rows that only read: the memory turns between reads and writes
//   bunching    rows that flush lie at random among the others, and what they add where they bunch is not
//               hidden: one standard deviation of a binomial count, times the write of one state
struct BufferedLaw {
    double latency_us = 0.0;
    double record_us = 0.0;
    double fold_us = 0.0;       // per record, last block
    double full_fold_us = 0.0;  // per record, on a full chip
    double heads_in_flight = 0.0;
    double write_gb_per_s = 0.0;
    double turn_gb_per_s = 0.0;
    double serial = 0.0;

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        return time_us(d, read_gb_per_s, latency_us + record_us * d.records_per_row);
    }

  protected:
    // plain_block: from first byte to end of a block that does not flush.
    double time_us(const LinearDemand& d, double read_gb_per_s, double plain_block) const {
        const double last_block = plain_block + fold_us * d.folds;
        const double transfer = transfer_us(d, read_gb_per_s, write_gb_per_s);
        const double occupancy =
            d.heads / heads_in_flight * (plain_block + d.flush_share * full_fold_us * d.folds);
        const double plain_share = 1.0 - d.flush_share;
        const double turns = transfer_us(d.flush_rows * plain_share * d.row_state, turn_gb_per_s);
        const double bunching =
            std::sqrt(d.flush_rows * plain_share) * transfer_us(d.row_state, write_gb_per_s);
        return last_block + soft_max(transfer, occupancy, serial) + turns + bunching;
    }
};

// The same with several new tokens a row: each after the first lengthens every block. What tokens and records
// do together is small beside either (a tensor-core instruction takes several tokens and records at once).
struct VerifyBufferedLaw : BufferedLaw {
    double token_us = 0.0;

    double time_us(const LinearDemand& d, double read_gb_per_s) const {
        return BufferedLaw::time_us(
            d, read_gb_per_s,
            latency_us + record_us * d.records_per_row + token_us * (d.tokens_per_row - 1.0));
    }
};

using LinearLaw = std::variant<RecurrentLaw, VerifyStoredLaw, BufferedLaw, VerifyBufferedLaw>;

// Calls use(law) with a law of the type that prices `form`; false for a form without one.
template <class Use>
bool with_law_of(Form form, Use&& use) {
    switch (form) {
        case Form::kRecurrent:
            use(RecurrentLaw{});
            return true;
        case Form::kVerifyStored:
            use(VerifyStoredLaw{});
            return true;
        case Form::kBuffered:
            use(BufferedLaw{});
            return true;
        case Form::kVerifyBuffered:
            use(VerifyBufferedLaw{});
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

template <>
inline constexpr std::array kLawParameters<BufferedLaw>{
    LawParameter<BufferedLaw>{"latency_us", &BufferedLaw::latency_us, kLatencyBounds},
    LawParameter<BufferedLaw>{"record_us", &BufferedLaw::record_us, kStepBounds, true},
    LawParameter<BufferedLaw>{"fold_us", &BufferedLaw::fold_us, kStepBounds, true},
    LawParameter<BufferedLaw>{"full_fold_us", &BufferedLaw::full_fold_us, kStepBounds, true},
    LawParameter<BufferedLaw>{"heads_in_flight", &BufferedLaw::heads_in_flight, {200.0, 1.0, 1e5}},
    LawParameter<BufferedLaw>{"write_gb_per_s", &BufferedLaw::write_gb_per_s, kRateBounds},
    LawParameter<BufferedLaw>{"turn_gb_per_s", &BufferedLaw::turn_gb_per_s, {5e3, 10.0, 1e6}},
    LawParameter<BufferedLaw>{"serial", &BufferedLaw::serial, kSerialBounds},
};

template <>
inline constexpr std::array kLawParameters<VerifyBufferedLaw>{
    LawParameter<VerifyBufferedLaw>{"latency_us", &VerifyBufferedLaw::latency_us, kLatencyBounds},
    LawParameter<VerifyBufferedLaw>{"record_us", &VerifyBufferedLaw::record_us, kStepBounds, true},
    LawParameter<VerifyBufferedLaw>{"fold_us", &VerifyBufferedLaw::fold_us, kStepBounds, true},
    LawParameter<VerifyBufferedLaw>{"full_fold_us", &VerifyBufferedLaw::full_fold_us, kStepBounds, true},
    LawParameter<VerifyBufferedLaw>{
        "heads_in_flight", &VerifyBufferedLaw::heads_in_flight, {200.0, 1.0, 1e5}},
    LawParameter<VerifyBufferedLaw>{"write_gb_per_s", &VerifyBufferedLaw::write_gb_per_s, kRateBounds},
    LawParameter<VerifyBufferedLaw>{"turn_gb_per_s", &VerifyBufferedLaw::turn_gb_per_s, {5e3, 10.0, 1e6}},
    LawParameter<VerifyBufferedLaw>{"serial", &VerifyBufferedLaw::serial, kSerialBounds},
    LawParameter<VerifyBufferedLaw>{"token_us", &VerifyBufferedLaw::token_us, kStepBounds},
};

}  // namespace kvsim
