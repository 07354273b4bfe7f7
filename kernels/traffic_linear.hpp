// Bytes and FLOPs of one linear-attention layer in every form: the only copy of these formulas.
//
// Source of the byte model: KVBuffer, arXiv 2605.19049, sections 3 and 4. Records hold bf16 keys, u in bf16
// or fp32, and fp32 gates. All counts are DRAM traffic of a cold launch: each input read once, each output
// written once.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/shapes.hpp"

namespace kvsim {

// Owners of a linear layer's bytes. Sums to total().
struct LinearTraffic {
    std::int64_t state_read = 0;
    std::int64_t state_write = 0;
    std::int64_t buffer_read = 0;
    std::int64_t buffer_write = 0;
    std::int64_t io_read = 0;   // q, k, v, gates of the new tokens
    std::int64_t io_write = 0;  // o
    std::int64_t flops = 0;     // multiply and add count as two

    constexpr std::int64_t read() const { return state_read + buffer_read + io_read; }
    constexpr std::int64_t write() const { return state_write + buffer_write + io_write; }
    constexpr std::int64_t total() const { return read() + write(); }
};

// Elements of the state of one request in one layer.
constexpr std::int64_t state_elements(const LinearShape& s) {
    return std::int64_t{s.v_heads} * s.v_dim * s.k_dim;
}

// S: bytes of the state of one request in one layer.
constexpr std::int64_t state_bytes(const LinearShape& s) {
    return state_elements(s) * bytes_per_element(s.state);
}

// Whether u depends on the state: what it holds for the key is taken off the value.
constexpr bool has_delta_rule(Family family) {
    return family == Family::kGdn || family == Family::kKda;
}

// Gates of one token: one per value head, of KDA one per channel of its key; those of lightning are fixed.
constexpr std::int64_t gate_values(const LinearShape& s) {
    if (s.family == Family::kLightning) return 0;
    return std::int64_t{s.v_heads} * (s.family == Family::kKda ? s.k_dim : 1);
}

// b: bytes of one buffered record of one request in one layer: bf16 k, fp32 gates, and u in bf16 as here, or
// in fp32 (RecordFormat::kFp32U): 4 instead of 2 bytes in the first term.
//   GDN       2 HV V + 2 HK K + 4 HV
//   KDA       2 HV V + 2 HV K + 4 HV K
//   Mamba-2   2 nh hd + 2 g N + 4 nh
//   lightning 2 H (K + V)
constexpr std::int64_t record_bytes(const LinearShape& s) {
    const std::int64_t u = (s.records == RecordFormat::kFp32U ? 4LL : 2LL) * s.v_heads * s.v_dim;
    // Keys of KDA decay channel by channel, each value head's by itself.
    const std::int64_t keys = s.family == Family::kKda ? s.v_heads : s.k_heads;
    return u + 2 * keys * s.k_dim + 4 * gate_values(s);
}

// Raw gates of one token, as projections leave them: of the decay, and with the delta rule beta of every
// head.
constexpr std::int64_t raw_gate_values(const LinearShape& s) {
    return gate_values(s) + (has_delta_rule(s.family) ? s.v_heads : 0);
}

// Bytes that one new token brings in (q, k, v and the raw gates in bf16) and takes out (o), per layer.
// GDN 16/32 heads: 16,384 + 128 in and 8,192 out = 24.7 KB.
constexpr std::int64_t token_input_bytes(const LinearShape& s) {
    return 2 * (2LL * s.k_heads * s.k_dim + 1LL * s.v_heads * s.v_dim + raw_gate_values(s));
}
constexpr std::int64_t token_output_bytes(const LinearShape& s) {
    return 2LL * s.v_heads * s.v_dim;
}

// Forms that read the records of a ring and append to it.
constexpr bool has_ring(Form form) {
    return form == Form::kBuffered || form == Form::kVerifyBuffered;
}

// Bytes of the state that one decode or verify step reads: the split format leaves its low plane alone.
constexpr std::int64_t state_read_bytes(const LinearShape& s) {
    return s.state == StateFormat::kSplit ? state_elements(s) * 2 : state_bytes(s);
}

// Records that a row folds into its state when it flushes and came with `fill` of them: decode folds the new
// token's too, verify knows its new tokens only as drafts and folds what is committed.
constexpr std::int64_t folded_records(Form form, std::int64_t fill) {
    return form == Form::kVerifyBuffered ? fill : fill + 1;
}

// How often a new token meets the record of an earlier one: each of a row's T new tokens the records that the
// row reads, and the new tokens before it, T (T - 1) / 2. T is the same for all rows.
constexpr std::int64_t token_record_pairs(const LinearWork& w) {
    if (w.sequences == 0) return 0;
    const std::int64_t tokens = w.new_tokens / w.sequences;
    return w.buffered_tokens * tokens + w.sequences * (tokens * (tokens - 1) / 2);
}

// Traffic of one launch. A flush is fused: it writes the state that the step has read anyway.
// `separate_flush` adds the second read of a flush kernel of its own (KVBuffer's first version; c = 2 in
// best_buffer_length).
constexpr LinearTraffic linear_traffic(const LinearShape& s, Form form, const LinearWork& w,
                                       bool separate_flush = false) {
    LinearTraffic t;
    const std::int64_t S = state_bytes(s);
    const std::int64_t b = record_bytes(s);
    const std::int64_t n = state_elements(s);
    // A token asks the state for o = S q; with the delta rule for S k too.
    const std::int64_t queries = has_delta_rule(s.family) ? 2 : 1;
    // Each meets a record as well: k_i.q per key head, then u_i times that scalar per value head.
    const std::int64_t record_flops = queries * (2LL * s.k_heads * s.k_dim + 2LL * s.v_heads * s.v_dim);
    const std::int64_t meetings = token_record_pairs(w);
    t.io_read = w.new_tokens * token_input_bytes(s);
    t.io_write = w.new_tokens * token_output_bytes(s);
    switch (form) {
        case Form::kRecurrent:
            t.state_read = w.sequences * S;
            t.state_write = w.sequences * S;
            t.flops = w.new_tokens * (queries * 2 + 3) * n;  // decay 1, rank-1 update 2
            break;
        case Form::kBuffered:
        case Form::kVerifyBuffered: {
            const std::int64_t low_plane = s.state == StateFormat::kSplit ? n * 2 : 0;
            t.state_read = w.sequences * state_read_bytes(s) + w.flushes * (separate_flush ? S : low_plane);
            t.state_write = w.flushes * S;
            t.buffer_read = w.buffered_tokens * b;
            t.buffer_write = w.new_tokens * b;
            t.flops = w.new_tokens * queries * 2 * n + meetings * record_flops;
            t.flops += w.flushes * n + w.flushed_tokens * 2 * n;  // decay, then one rank-1 update per record
            break;
        }
        case Form::kDirect:
            t.buffer_read = w.buffered_tokens * b;
            t.buffer_write = w.new_tokens * b;
            t.flops = meetings * record_flops;
            break;
        case Form::kVerifyStored:
            t.state_read = w.sequences * S;
            t.state_write = w.new_tokens * S;
            t.flops = w.new_tokens * (queries * 2 + 3) * n;
            break;
    }
    return t;
}

// Closed forms of the byte model, per layer and request. flush_cost c: 1 for a fused flush (one extra write
// of S per cycle), 2 for a separate flush kernel (read and write).

// m* = sqrt(2 c S / b), the minimum of S + c S/m + b (m-1)/2 + b over real m.
inline double best_buffer_length(const LinearShape& s, double flush_cost) {
    return std::sqrt(2.0 * flush_cost * static_cast<double>(state_bytes(s)) /
                     static_cast<double>(record_bytes(s)));
}

// n* = S / b: the context below which the direct form moves fewer bytes than one read of the state.
inline double direct_break_even(const LinearShape& s) {
    return static_cast<double>(state_bytes(s)) / static_cast<double>(record_bytes(s));
}

// Bytes per token of the buffered form averaged over a cycle of m tokens: S + c S/m + b (m-1)/2 + b.
inline double buffered_cycle_bytes(const LinearShape& s, double m, double flush_cost) {
    const auto S = static_cast<double>(state_bytes(s));
    const auto b = static_cast<double>(record_bytes(s));
    return S + flush_cost * S / m + b * (m - 1.0) / 2.0 + b;
}

}  // namespace kvsim
