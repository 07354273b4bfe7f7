// A profile made from known laws: what a perfect device would measure.
#pragma once

#include "kernels/traffic_linear.hpp"
#include "sim/cost/fit.hpp"
#include "sim/cost/profile.hpp"

namespace kvsim::testing {

inline constexpr double kNodeUs = 0.53;
inline constexpr StreamLaw kCopyLaw{1.7, 0.6, 4231.0};
inline constexpr StreamLaw kReadLaw{1.5, 0.5, 4386.0};
inline constexpr RecurrentLaw kRecurrentLaw{2.6, 0.8, 3400.0};
inline constexpr BufferedLaw kBufferedLaw{2.2, 0.05, 0.1, 0.2, 200.0, 3200.0, 7000.0, 0.05};
inline constexpr std::int64_t kFittedBatches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
inline constexpr std::int64_t kHeldOutBatches[] = {24, 48, 96, 192, 384};

inline LinearShape gdn(int v_heads) {
    return {Family::kGdn, 16, v_heads, 128, 128, StateFormat::kFp32};
}

inline ProfileRow probe_row(const char* kernel, std::int64_t bytes, double us) {
    ProfileRow r;
    r.kernel = kernel;
    if (bytes > 0) r.bytes = bytes;
    r.l2 = L2State::kCold;
    r.time_us = us;
    return r;
}

inline ProfileRow linear_row(Form form, int v_heads, std::int64_t batch, std::int64_t fill,
                             std::int64_t flush_rows, int ring_capacity = 16) {
    ProfileRow r;
    r.kernel = form == Form::kRecurrent ? "linear_recurrent" : "linear_buffered";
    const LinearShape s = gdn(v_heads);
    r.family = s.family;
    r.form = form;
    r.k_heads = s.k_heads;
    r.v_heads = s.v_heads;
    r.k_dim = s.k_dim;
    r.v_dim = s.v_dim;
    r.state_dtype = s.state;
    r.batch = batch;
    r.tokens = 1;
    r.l2 = L2State::kCold;
    r.verified = true;
    if (form == Form::kBuffered) {
        r.records = s.records;
        r.buffer_length = ring_capacity;
        r.fill = fill;
        r.buffered_tokens = batch * fill;
        r.flush_rows = flush_rows;
    }
    const LinearLaunch l = launch_of(r);
    const LinearDemand d = linear_demand(l, linear_traffic(s, form, l.work));
    r.time_us = kNodeUs + (form == Form::kRecurrent ? kRecurrentLaw.time_us(d, kReadLaw.gb_per_s)
                                                    : kBufferedLaw.time_us(d, kReadLaw.gb_per_s));
    return r;
}

// Every batch of the grid, both head counts, every fill, and flushes of one row, a quarter and all; some
// longer rings.
inline Profile synthetic_profile() {
    Profile p{"synthetic", {}};
    const auto add = [&](ProfileRow r) {
        p.rows.push_back({std::move(r), {"synthetic.csv", static_cast<int>(p.rows.size()) + 2, 0}});
    };
    add(probe_row("empty", 0, kNodeUs));
    for (std::int64_t bytes = 1 << 16; bytes <= std::int64_t{1} << 31; bytes *= 2) {
        add(probe_row("stream_copy", bytes, kNodeUs + kCopyLaw.time_us(static_cast<double>(bytes))));
        add(probe_row("stream_read", bytes, kNodeUs + kReadLaw.time_us(static_cast<double>(bytes))));
    }
    const auto add_batch = [&](std::int64_t batch) {
        for (const int v_heads : {32, 48}) {
            add(linear_row(Form::kRecurrent, v_heads, batch, 0, 0));
            for (std::int64_t fill = 0; fill < 16; ++fill)
                add(linear_row(Form::kBuffered, v_heads, batch, fill, 0));
            for (const std::int64_t fill : {0, 3, 7, 11, 15}) {
                add(linear_row(Form::kBuffered, v_heads, batch, fill, batch));
                if (batch >= 4) add(linear_row(Form::kBuffered, v_heads, batch, fill, batch / 4));
                if (batch >= 4) add(linear_row(Form::kBuffered, v_heads, batch, fill, 1));
            }
        }
    };
    for (const std::int64_t batch : kFittedBatches) {
        add_batch(batch);
        for (const int capacity : {4, 64, 128}) {
            for (const std::int64_t fill : {0, capacity - 1}) {
                add(linear_row(Form::kBuffered, 32, batch, fill, 0, capacity));
                add(linear_row(Form::kBuffered, 32, batch, fill, batch, capacity));
            }
        }
    }
    for (const std::int64_t batch : kHeldOutBatches) add_batch(batch);
    return p;
}

}  // namespace kvsim::testing
