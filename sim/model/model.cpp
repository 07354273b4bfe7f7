#include "sim/model/model.hpp"

#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_linear_layer.hpp"
#include "sim/base/check.hpp"

namespace kvsim {

namespace {

constexpr std::int64_t kBytesPerWeight = 2;   // bf16
constexpr std::int64_t kBytesPerKvValue = 2;  // bf16
constexpr std::int64_t kBytesPerConvValue = 2;

// The convolution's channels do not depend on the state format.
std::int64_t channels_of(const ModelSpec& m) { return conv_channels(linear_shape(m, StateFormat::kFp32)); }

// Gated DeltaNet mixer as in transformers `Qwen3NextGatedDeltaNet` and `Qwen3_5GatedDeltaNet`:
//   in_proj_qkvz h (2 HK K + 2 HV V), in_proj_ba h 2 HV, conv1d C x kernel without bias, A_log and dt_bias HV
//   each, gated norm V, out_proj HV V h.
std::int64_t gdn_parameters(const ModelSpec& m) {
    const LinearLayerSpec& l = m.linear;
    const std::int64_t h = m.hidden;
    const std::int64_t keys = std::int64_t{l.k_heads} * l.k_dim;
    const std::int64_t values = std::int64_t{l.v_heads} * l.v_dim;
    return h * (2 * keys + 2 * values) + 2 * h * l.v_heads + channels_of(m) * l.conv_kernel +
           2 * l.v_heads + l.v_dim + values * h;
}

// `Qwen3NextAttention`: q_proj holds query and gate (2 nq d), k and v nkv d each, o_proj nq d h, q and k norm
// d each.
std::int64_t attention_parameters(const ModelSpec& m) {
    const AttentionSpec& a = m.attention;
    const std::int64_t h = m.hidden;
    const std::int64_t queries = std::int64_t{a.q_heads} * a.head_dim;
    const std::int64_t keys = std::int64_t{a.kv_heads} * a.head_dim;
    return h * (2 * queries + 2 * keys) + queries * h + 2 * a.head_dim;
}

// `experts_counted` is all experts for what is stored, top_k for what a token uses.
std::int64_t ffn_parameters(const ModelSpec& m, std::int64_t experts_counted) {
    const FfnSpec& f = m.ffn;
    const std::int64_t h = m.hidden;
    if (f.kind == FfnKind::kDense) return 3 * h * f.intermediate;
    // `Qwen3NextSparseMoeBlock`: routed experts, router, shared expert with its sigmoid gate of h weights.
    const std::int64_t shared = f.shared_intermediate > 0 ? 3 * h * f.shared_intermediate + h : 0;
    return 3 * experts_counted * h * f.expert_intermediate + h * f.experts + shared;
}

}  // namespace

LinearShape linear_shape(const ModelSpec& model, StateFormat state) {
    const LinearLayerSpec& l = model.linear;
    return {l.family, l.k_heads, l.v_heads, l.k_dim, l.v_dim, state};
}

ParameterCounts count_parameters(const ModelSpec& model) {
    KVSIM_CHECK(model.linear.family == Family::kGdn, "{}: no parameter formula for family {}", model.name,
                name(model.linear.family));
    ParameterCounts p;
    p.linear_layer = gdn_parameters(model);
    p.attention_layer = attention_parameters(model);
    p.ffn_layer = ffn_parameters(model, model.ffn.experts);
    p.ffn_layer_active = ffn_parameters(model, model.ffn.top_k);
    const std::int64_t h = model.hidden;
    const std::int64_t norms = 2 * h * model.layers() + h;
    const std::int64_t mixers = model.linear_layers * p.linear_layer + model.full_layers * p.attention_layer;
    p.body = mixers + norms + model.layers() * p.ffn_layer;
    p.body_active = mixers + norms + model.layers() * p.ffn_layer_active;
    p.embedding = model.vocab * h;
    p.head = model.tied_embeddings ? 0 : p.embedding;
    return p;
}

Bytes weight_bytes(const ModelSpec& model) {
    return Bytes(kBytesPerWeight * count_parameters(model).total());
}

Bytes state_bytes_per_request(const ModelSpec& model, StateFormat state) {
    return Bytes(model.linear_layers * state_bytes(linear_shape(model, state)));
}

Bytes conv_bytes_per_request(const ModelSpec& model) {
    const std::int64_t window = channels_of(model) * (model.linear.conv_kernel - 1);
    return Bytes(model.linear_layers * window * kBytesPerConvValue);
}

Bytes ring_bytes_per_request(const ModelSpec& model, int ring_capacity) {
    // Records hold bf16 values and fp32 gates whatever the state format is.
    return Bytes(model.linear_layers * ring_capacity * record_bytes(linear_shape(model, StateFormat::kFp32)));
}

Bytes kv_bytes_per_token(const ModelSpec& model) {
    const AttentionSpec& a = model.attention;
    return Bytes(model.full_layers * 2LL * a.kv_heads * a.head_dim * kBytesPerKvValue);
}

}  // namespace kvsim
