// A profile made from known laws: what a perfect device would measure.
#pragma once

#include <string>
#include <utility>

#include "kernels/traffic_linear.hpp"
#include "sim/cost/fit.hpp"
#include "sim/cost/profile.hpp"

namespace kvsim::testing {

inline constexpr double kNodeUs = 0.53;
inline constexpr StreamLaw kCopyLaw{1.7, 0.6, 4231.0};
inline constexpr StreamLaw kReadLaw{1.5, 0.5, 4386.0};
inline constexpr RecurrentLaw kRecurrentLaw{2.6, 0.8, 3400.0};
inline constexpr VerifyStoredLaw kVerifyStoredLaw{{2.8, 0.7, 3300.0}, 0.4};
inline constexpr SmallLaw kSmallLaw{2.2, 0.05, 0.1, 0.2, 200.0, 3200.0, 7000.0, 0.05, 0.3};
inline constexpr VerifySmallLaw kVerifySmallLaw{
    {2.4, 0.04, 0.12, 0.15, 150.0, 3300.0, 6000.0, 0.07, 0.2}, 1.5, 2.5, 0.05};
inline constexpr PipelinedLaw kPipelinedLaw{4.0, 0.08, 0.05, 0.07, 0.2, 5.0, 1.0, 0.3, 0.9, 4000.0, 0.1, 0.6};
inline constexpr VerifyPipelinedLaw kVerifyPipelinedLaw{
    {4.2, 0.2, 0.06, 0.25, 0.3, 4.5, 2.0, 0.1, 0.95, 3900.0, 0.1, 0.5}, 1.7, 3.8, 0.02};
// With u in fp32, what depends on records takes so many times as long.
inline constexpr double kWideRecord = 1.5;
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

// One launch to be measured; a ring's part only where the form has one.
struct Cell {
    LinearShape shape = gdn(32);
    Form form = Form::kRecurrent;
    std::int64_t batch = 1;
    std::int64_t fill = 0;
    std::int64_t flush_rows = 0;
    std::int64_t tokens = 1;
    std::int64_t ring_capacity = 16;
};

// The law of a form, kernel and record format.
inline LinearLaw true_law(Form form, BufferedKernel kernel, RecordFormat records) {
    LinearLaw law;
    if (form == Form::kRecurrent) law = kRecurrentLaw;
    if (form == Form::kVerifyStored) law = kVerifyStoredLaw;
    if (form == Form::kBuffered && kernel == BufferedKernel::kSmall) law = kSmallLaw;
    if (form == Form::kBuffered && kernel == BufferedKernel::kPipelined) law = kPipelinedLaw;
    if (form == Form::kVerifyBuffered && kernel == BufferedKernel::kSmall) law = kVerifySmallLaw;
    if (form == Form::kVerifyBuffered && kernel == BufferedKernel::kPipelined) law = kVerifyPipelinedLaw;
    if (records == RecordFormat::kFp32U) {
        std::visit(
            []<class Law>(Law& l) {
                for (const auto& p : kLawParameters<Law>) {
                    if (p.of_records) l.*(p.member) *= kWideRecord;
                }
            },
            law);
    }
    return law;
}

inline ProfileRow measured(const Cell& c) {
    ProfileRow r;
    r.kernel = "linear_" + std::string(name(c.form));
    const LinearShape& s = c.shape;
    r.family = s.family;
    r.form = c.form;
    r.k_heads = s.k_heads;
    r.v_heads = s.v_heads;
    r.k_dim = s.k_dim;
    r.v_dim = s.v_dim;
    r.state_dtype = s.state;
    r.batch = c.batch;
    r.tokens = c.tokens;
    r.l2 = L2State::kCold;
    r.verified = true;
    if (has_ring(c.form)) {
        r.records = s.records;
        r.buffer_length = c.ring_capacity;
        r.fill = c.fill;
        r.buffered_tokens = c.batch * c.fill;
        r.flush_rows = c.flush_rows;
    }
    const LinearLaunch l = launch_of(r);
    const LinearDemand d = linear_demand(l, linear_traffic(s, c.form, l.work));
    r.time_us = kNodeUs + std::visit([&](const auto& law) { return law.time_us(d, kReadLaw.gb_per_s); },
                                     true_law(c.form, d.kernel, s.records));
    return r;
}

inline ProfileRow linear_row(Form form, int v_heads, std::int64_t batch, std::int64_t fill,
                             std::int64_t flush_rows, std::int64_t ring_capacity = 16) {
    return measured({gdn(v_heads), form, batch, fill, flush_rows, 1, ring_capacity});
}

inline void add_row(Profile& profile, ProfileRow row) {
    profile.rows.push_back({std::move(row), {"synthetic.csv", static_cast<int>(profile.rows.size()) + 2, 0}});
}

// Every batch of the grid, both head counts, every fill, and flushes of one row, a quarter and all; shorter
// rings, and longer ones, which the pipelined kernel serves.
inline Profile synthetic_profile() {
    Profile p{"synthetic", {}};
    const auto add = [&](ProfileRow r) { add_row(p, std::move(r)); };
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
        for (const std::int64_t capacity : {4, 64, 128}) {
            for (const std::int64_t fill : {std::int64_t{0}, capacity / 2 - 1, capacity - 1}) {
                add(linear_row(Form::kBuffered, 32, batch, fill, 0, capacity));
                add(linear_row(Form::kBuffered, 32, batch, fill, batch, capacity));
                if (batch >= 4) add(linear_row(Form::kBuffered, 32, batch, fill, batch / 4, capacity));
                if (batch >= 4) add(linear_row(Form::kBuffered, 32, batch, fill, 1, capacity));
            }
        }
    }
    for (const std::int64_t batch : kHeldOutBatches) add_batch(batch);
    return p;
}

// Verification of the same states, and further formats: fp32 with stored states and with rings, split states,
// and a few rows with u in fp32.
inline Profile synthetic_profile_of_all() {
    Profile p = synthetic_profile();
    LinearShape split = gdn(32), wide = gdn(32);
    split.state = StateFormat::kSplit;
    wide.records = RecordFormat::kFp32U;
    for (const std::int64_t batch : {1, 8, 24, 64, 512}) {
        for (const std::int64_t flushes : {std::int64_t{0}, batch}) {
            add_row(p, measured({gdn(32), Form::kVerifyBuffered, batch, 59, flushes, 5, 64}));
        }
        for (std::int64_t tokens = 2; tokens <= 9; ++tokens) {
            add_row(p, measured({gdn(32), Form::kVerifyStored, batch, 0, 0, tokens}));
            for (const std::int64_t fill : {std::int64_t{0}, std::int64_t{4}, 16 - tokens}) {
                for (const std::int64_t flushes : {std::int64_t{0}, (batch + 3) / 4, batch})
                    add_row(p, measured({gdn(32), Form::kVerifyBuffered, batch, fill, flushes, tokens}));
            }
        }
        for (const std::int64_t fill : {0, 7, 15}) {
            for (const std::int64_t flushes : {std::int64_t{0}, (batch + 3) / 4, batch})
                add_row(p, measured({split, Form::kBuffered, batch, fill, flushes}));
        }
        for (const std::int64_t fill : {0, 15, 31, 63}) {
            for (const std::int64_t flushes : {std::int64_t{0}, (batch + 3) / 4, batch})
                add_row(p, measured({split, Form::kBuffered, batch, fill, flushes, 1, 64}));
        }
    }
    for (const std::int64_t batch : {8, 64, 512}) {
        for (const std::int64_t flushes : {std::int64_t{0}, batch}) {
            add_row(p, measured({wide, Form::kVerifyBuffered, batch, 8, flushes, 5}));
            add_row(p, measured({wide, Form::kVerifyBuffered, batch, 59, flushes, 5, 64}));
        }
    }
    return p;
}

}  // namespace kvsim::testing
