// Bytes of activations that a decode step moves, counted value by value from what each kernel of SGLang reads
// and writes: a second way to the totals of the layer graph, which shares no formula with it. One rank, bf16,
// fused as SGLang fuses (plain_engine()), forms of one token per row or of several.
#pragma once

#include <cstdint>

#include "sim/cost/step_shape.hpp"
#include "sim/model/model.hpp"

namespace kvsim::testing {

// Values of two bytes that a product reads and writes for one row: K in, N out.
inline std::int64_t product(std::int64_t n, std::int64_t k) {
    return 2 * (k + n);
}
inline std::int64_t read_and_write(std::int64_t values) {
    return 2 * values + 2 * values;
}
// x and the residual in, their sum and its norm out.
inline std::int64_t add_and_norm(std::int64_t h) {
    return 2 * 2 * h + 2 * 2 * h;
}

// ---- per token ----

inline std::int64_t linear_token(const LinearMixer& m, std::int64_t h, bool verifies) {
    const std::int64_t keys = std::int64_t{m.k_heads} * m.k_dim;
    const std::int64_t values = std::int64_t{m.v_heads} * m.v_dim;
    const std::int64_t heads = m.v_heads;
    const std::int64_t channels = 2 * keys + values;  // q, k, v, or C, B, x
    const std::int64_t conv = m.conv_kernel > 0 ? read_and_write(channels) : 0;
    const std::int64_t kernel = 2 * channels + 2 * values;            // q, k, v in, o out; gates on top
    const std::int64_t gated = 2 * values + 2 * values + 2 * values;  // o and z in, one out
    const std::int64_t out = product(h, values);
    switch (m.family) {
        case Family::kGdn: {
            // q, k, v, z, then b and a; copied apart; the norm stores a float per head.
            const std::int64_t in = product(channels + values, h) + product(2 * heads, h) +
                                    read_and_write(channels + values + 2 * heads);
            const std::int64_t split = verifies ? read_and_write(channels) : 0;  // q, k, v once more
            return in + conv + split + kernel + 2 * 2 * heads + gated + 4 * heads + out;
        }
        case Family::kKda: {
            // q, k, v, beta and two bottlenecks, each widened from v_dim values to one per channel.
            const std::int64_t in = product(channels + heads + 2 * m.v_dim, h) +
                                    product(heads * m.k_dim, m.v_dim) + product(values, m.v_dim);
            return in + conv + kernel + 2 * heads + 2 * heads * m.k_dim + gated + out;
        }
        case Family::kMamba2:
            return product(channels + values + heads, h) + conv + kernel + 2 * heads + gated + out;
        case Family::kLightning:
            return product(channels, h) + read_and_write(channels) + kernel + product(values, h) + gated +
                   out;
    }
    return 0;
}

inline std::int64_t attention_token(const GqaMixer& m, std::int64_t h) {
    const std::int64_t queries = std::int64_t{m.q_heads} * m.head_dim;
    const std::int64_t keys = std::int64_t{m.kv_heads} * m.head_dim;
    const std::int64_t gates = m.output_gate ? queries : 0;
    std::int64_t bytes = product(queries + gates + 2 * keys, h);
    if (m.qk_norm) {
        bytes += read_and_write(queries + gates + keys);
    } else if (m.rope) {
        bytes += read_and_write(queries + keys);
    }
    bytes += 2 * 2 * keys;                       // K and V to the cache, whose write another owner has
    bytes += 2 * queries + 2 * queries;          // queries in, outputs out
    bytes += 2 * gates + 2 * gates + 2 * gates;  // gate and output in, one out
    return bytes + product(h, queries);
}

inline std::int64_t attention_token(const MlaMixer& m, std::int64_t h) {
    const std::int64_t heads = m.q_heads;
    const std::int64_t query = heads * (m.nope_dim + m.rope_dim);
    const std::int64_t cached = m.kv_latent + m.rope_dim;
    std::int64_t bytes =
        m.q_latent > 0 ? product(m.q_latent, h) + read_and_write(m.q_latent) + product(query, m.q_latent)
                       : product(query, h);
    bytes += product(cached, h) + read_and_write(m.kv_latent);
    if (m.rope) bytes += read_and_write((heads + 1) * m.rope_dim);
    bytes += heads * product(m.kv_latent, m.nope_dim);      // each head's query to the latent
    bytes += 2 * cached;                                    // to the cache
    bytes += 2 * heads * cached + 2 * heads * m.kv_latent;  // queries in, outputs out
    bytes += heads * product(m.v_dim, m.kv_latent);         // each head's output from the latent
    return bytes + product(h, heads * m.v_dim);
}

inline std::int64_t activation_token(Activation a, std::int64_t width) {
    return a == Activation::kSwiglu ? 2 * 2 * width + 2 * width : read_and_write(width);
}
inline std::int64_t up_width(Activation a, std::int64_t width) {
    return a == Activation::kSwiglu ? 2 * width : width;
}

inline std::int64_t ffn_token(const DenseFfn& f, std::int64_t h) {
    return product(up_width(f.activation, f.width), h) + activation_token(f.activation, f.width) +
           product(h, f.width);
}

inline std::int64_t ffn_token(const MoeFfn& f, std::int64_t h) {
    const bool triton = f.activation == Activation::kSwiglu;
    const std::int64_t in = f.latent > 0 ? f.latent : h;
    const std::int64_t k = f.top_k;
    std::int64_t bytes = product(f.experts, h);  // router
    bytes += 2 * f.experts + (4 + 4) * k;        // logits in, weights and ids out
    bytes += 4 * k + 4 * k;                      // ids in, positions out
    if (f.latent > 0) bytes += product(f.latent, h) + product(h, f.latent);
    if (triton) {
        bytes += 2 * in + 2 * k * 2 * f.expert_width;  // a row is gathered k times from the L2
    } else {
        bytes += 2 * in + 2 * k * in;  // rows are expanded
        bytes += k * product(f.expert_width, in);
    }
    bytes += k * activation_token(f.activation, f.expert_width) + k * product(in, f.expert_width);
    bytes += 2 * k * in + 2 * in;              // sum of k rows
    if (!triton) bytes += read_and_write(in);  // times the routed scale
    if (f.shared_width == 0) return bytes;
    if (triton) bytes += read_and_write(h);  // a copy of the input
    bytes += ffn_token(DenseFfn{"shared", f.shared_width, f.activation}, h);
    // Input for the gate and both outputs in, one out; or both outputs in, one out.
    return bytes + (f.shared_gate ? 2 * 3 * h + 2 * h : 2 * 2 * h + 2 * h);
}

// ---- the step ----

inline std::int64_t activation_bytes(const ModelSpec& model, const StepShape& s) {
    const std::int64_t h = model.hidden;
    const std::int64_t tokens = s.tokens();
    const bool verifies = tokens > s.decode.sequences;
    std::int64_t token = 2 * h + add_and_norm(h);  // embedding out; final norm
    for (const LayerKind& kind : model.kinds) {
        std::int64_t layer = kind.sublayers() * add_and_norm(h);
        if (kind.linear) layer += linear_token(*kind.linear, h, verifies);
        if (kind.attention)
            layer += std::visit([&](const auto& m) { return attention_token(m, h); }, *kind.attention);
        if (kind.linear && kind.attention) layer += 2 * 2 * h + 2 * h;  // the sum of both
        if (kind.ffn) layer += std::visit([&](const auto& f) { return ffn_token(f, h); }, *kind.ffn);
        token += model.count(kind) * layer;
    }
    const std::int64_t v = model.vocab;
    const std::int64_t logits = product(v, h) + (2 * v + 4 * v) + 4 * v;  // head, copy to fp32, argmax
    return tokens * token + s.logit_rows * logits;
}

}  // namespace kvsim::testing
