// The laws that are fitted: time of a launch as a function of what it asks of the memory. Pure arithmetic, no
// I/O.
//
// A launch of few blocks is bound by latency: the bytes in flight are all that it has, and they arrive
// together (Little's law). A large one is bound by bandwidth. Between the two, t = node + soft_max(latency,
// transfer). Microseconds inside.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

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

// One parameter of a law: its name in fit.yaml, where it lives, and the bounds that physics sets.
template <class Law>
struct LawParameter {
    std::string_view name;
    double Law::*member;
    BoundedParameter bounds;
};

// Copy and read of a contiguous buffer.
struct StreamLaw {
    double latency_us = 0.0;
    double serial = 0.0;
    double gb_per_s = 0.0;  // of a buffer without end

    // Beyond the empty node.
    double time_us(double bytes) const { return soft_max(latency_us, transfer_us(bytes, gb_per_s), serial); }
};

// What a launch of a linear layer asks for, in bytes and FLOP.
struct LinearDemand {
    double read = 0.0;             // state, and q, k, v of the new tokens
    double write = 0.0;            // state, record, output
    double ring = 0.0;             // records read
    double records_per_row = 0.0;  // mean over rows
    double flush_flops = 0.0;      // rank-m updates
    bool flushes = false;
};

inline LinearDemand linear_demand(const LinearShape& s, const LinearTraffic& t, const LinearWork& w) {
    LinearDemand d;
    d.read = static_cast<double>(t.state_read + t.io_read);
    d.write = static_cast<double>(t.write());
    d.ring = static_cast<double>(t.buffer_read);
    d.records_per_row = static_cast<double>(w.buffered_tokens) / static_cast<double>(w.sequences);
    d.flush_flops = 2.0 * static_cast<double>(state_elements(s)) * static_cast<double>(w.flushes) *
                    (d.records_per_row + 1.0);
    d.flushes = w.flushes > 0;
    return d;
}

// Reads and writes alternate on the same bytes, so one rate serves both.
struct RecurrentLaw {
    double latency_us = 0.0;
    double serial = 0.0;
    double gb_per_s = 0.0;

    double time_us(const LinearDemand& d) const {
        return soft_max(latency_us, transfer_us(d.read + d.write, gb_per_s), serial);
    }
};

// The ring is read in steps that depend on each other, so each record adds latency as well as bytes. A block
// whose row flushes lasts longer than its neighbours and is waited for: flush_us, once per launch, however
// many rows flush.
struct BufferedLaw {
    double latency_us = 0.0;
    double serial = 0.0;
    double read_gb_per_s = 0.0;
    double write_gb_per_s = 0.0;
    double ring_gb_per_s = 0.0;
    double record_us = 0.0;
    double flush_us = 0.0;
    double flush_gflop_per_s = 0.0;

    double time_us(const LinearDemand& d) const {
        const double latency = latency_us + record_us * d.records_per_row + (d.flushes ? flush_us : 0.0);
        const double transfer = transfer_us(d.read, read_gb_per_s) + transfer_us(d.write, write_gb_per_s) +
                                transfer_us(d.ring, ring_gb_per_s) +
                                transfer_us(d.flush_flops, flush_gflop_per_s);
        return soft_max(latency, transfer, serial);
    }
};

// Bounds: latencies from a tenth of a microsecond, below which no kernel ends, to that of a launch which is
// wholly serial; rates up to what no memory of today reaches, so that a fit that needs more is caught by the
// physics check of its device.
template <class Law>
inline constexpr int kLawParameters = 0;

template <>
inline constexpr std::array kLawParameters<StreamLaw>{
    LawParameter<StreamLaw>{"latency_us", &StreamLaw::latency_us, {2.0, 0.1, 50.0}},
    LawParameter<StreamLaw>{"serial", &StreamLaw::serial, {0.5, 1e-3, 1.0}},
    LawParameter<StreamLaw>{"gb_per_s", &StreamLaw::gb_per_s, {1e3, 10.0, 2e4}},
};

template <>
inline constexpr std::array kLawParameters<RecurrentLaw>{
    LawParameter<RecurrentLaw>{"latency_us", &RecurrentLaw::latency_us, {2.0, 0.1, 50.0}},
    LawParameter<RecurrentLaw>{"serial", &RecurrentLaw::serial, {0.5, 1e-3, 1.0}},
    LawParameter<RecurrentLaw>{"gb_per_s", &RecurrentLaw::gb_per_s, {1e3, 10.0, 2e4}},
};

template <>
inline constexpr std::array kLawParameters<BufferedLaw>{
    LawParameter<BufferedLaw>{"latency_us", &BufferedLaw::latency_us, {2.0, 0.1, 50.0}},
    LawParameter<BufferedLaw>{"serial", &BufferedLaw::serial, {0.5, 1e-3, 1.0}},
    LawParameter<BufferedLaw>{"read_gb_per_s", &BufferedLaw::read_gb_per_s, {1e3, 10.0, 2e4}},
    LawParameter<BufferedLaw>{"write_gb_per_s", &BufferedLaw::write_gb_per_s, {1e3, 10.0, 2e4}},
    LawParameter<BufferedLaw>{"ring_gb_per_s", &BufferedLaw::ring_gb_per_s, {1e3, 10.0, 2e4}},
    LawParameter<BufferedLaw>{"record_us", &BufferedLaw::record_us, {0.02, 1e-4, 5.0}},
    LawParameter<BufferedLaw>{"flush_us", &BufferedLaw::flush_us, {1.0, 1e-3, 50.0}},
    LawParameter<BufferedLaw>{"flush_gflop_per_s", &BufferedLaw::flush_gflop_per_s, {2e4, 100.0, 1e6}},
};

// Fits a law to measured times beyond the empty node: least squares of the logarithm of the ratio.
// predict(law, i) is the law's time of row i.
template <class Law, class Predict>
Law fit_law(std::span<const double> measured_us, double node_us, Predict predict) {
    constexpr auto& table = kLawParameters<Law>;
    std::array<BoundedParameter, table.size()> bounds;
    for (std::size_t i = 0; i < table.size(); ++i) bounds[i] = table[i].bounds;
    const auto to_law = [](std::span<const double> p) {
        Law law;
        for (std::size_t i = 0; i < table.size(); ++i) law.*(table[i].member) = p[i];
        return law;
    };
    return to_law(
        least_squares(bounds, measured_us.size(), [&](std::span<const double> p, std::span<double> r) {
            const Law law = to_law(p);
            for (std::size_t i = 0; i < r.size(); ++i)
                r[i] = std::log((node_us + predict(law, i)) / measured_us[i]);
        }));
}

}  // namespace kvsim
