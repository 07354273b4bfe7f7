#include "sim/model/parameters.hpp"

namespace kvsim {

namespace {

using enum WeightGroup;
using Matrices = std::vector<WeightMatrix>;

constexpr std::int64_t kElementBits[] = {16, 8, 4};  // by WeightType

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

WeightMatrix vector_of(std::string_view name, std::int64_t n) {
    return {name, kOther, 1, n};
}

// Heads times channels on the two sides of the recurrence.
struct Widths {
    std::int64_t keys;    // all key heads (Mamba-2: groups), of B or C, k or q
    std::int64_t values;  // all value heads
    std::int64_t channels() const { return 2 * keys + values; }

    explicit Widths(const LinearMixer& m)
        : keys(std::int64_t{m.k_heads} * m.k_dim), values(std::int64_t{m.v_heads} * m.v_dim) {}
};

void add_convolution(Matrices& list, const LinearMixer& m) {
    if (m.conv_kernel == 0) return;
    const std::int64_t channels = Widths(m).channels();
    list.push_back({"conv", kOther, channels, m.conv_kernel});
    if (m.conv_bias) list.push_back(vector_of("conv_bias", channels));
}

void add_norm(Matrices& list, const LinearMixer& m, std::int64_t width) {
    if (m.gated_norm) list.push_back(vector_of("gated_norm", width));
}

// transformers `Qwen3NextGatedDeltaNet`, `Qwen3_5GatedDeltaNet`: one norm for all heads.
Matrices gdn(const LinearMixer& m, std::int64_t h) {
    const Widths w(m);
    Matrices list{{"in_proj_qkvz", kMixers, 2 * w.keys + 2 * w.values, h},
                  {"in_proj_ba", kOther, 2LL * m.v_heads, h}};
    add_convolution(list, m);
    list.push_back(vector_of("a_log", m.v_heads));
    list.push_back(vector_of("dt_bias", m.v_heads));
    add_norm(list, m, m.v_dim);
    list.push_back({"out_proj", kMixers, h, w.values});
    return list;
}

// `KimiDeltaAttention`: decay (f) and output gate (g) go through v_dim values.
Matrices kda(const LinearMixer& m, std::int64_t h) {
    const Widths w(m);
    const std::int64_t keys =
        std::int64_t{m.v_heads} * m.k_dim;  // decays: one per channel of every value head
    Matrices list{{"qkv_proj", kMixers, w.channels(), h}, {"b_proj", kOther, m.v_heads, h},
                  {"f_a_proj", kMixers, m.v_dim, h},      {"g_a_proj", kMixers, m.v_dim, h},
                  {"f_b_proj", kMixers, keys, m.v_dim},   {"g_b_proj", kMixers, w.values, m.v_dim}};
    add_convolution(list, m);
    list.push_back(vector_of("a_log", m.v_heads));
    list.push_back(vector_of("dt_bias", keys));
    add_norm(list, m, m.v_dim);
    list.push_back({"o_proj", kMixers, h, w.values});
    return list;
}

// `NemotronHMamba2Mixer`, `GraniteMoeHybridMambaLayer`, `FalconH1Mixer`: z, x, B, C and dt from one
// projection.
Matrices mamba2(const LinearMixer& m, std::int64_t h) {
    const Widths w(m);
    Matrices list{{"in_proj", kMixers, w.values + w.channels() + m.v_heads, h}};
    add_convolution(list, m);
    list.push_back(vector_of("a_log", m.v_heads));
    list.push_back(vector_of("dt_bias", m.v_heads));
    list.push_back(vector_of("d", m.v_heads));
    add_norm(list, m, w.values);
    list.push_back({"out_proj", kMixers, h, w.values});
    return list;
}

// vLLM `MiniMaxText01LinearAttention`: fixed decays, a gate as wide as the output.
Matrices lightning(const LinearMixer& m, std::int64_t h) {
    const Widths w(m);
    Matrices list{{"qkv_proj", kMixers, w.channels(), h}, {"output_gate", kMixers, w.values, h}};
    add_convolution(list, m);
    add_norm(list, m, w.values);
    list.push_back({"out_proj", kMixers, h, w.values});
    return list;
}

// `Qwen3NextAttention`, `NemotronHAttention`.
Matrices gqa(const GqaMixer& m, std::int64_t h) {
    const std::int64_t queries = std::int64_t{m.q_heads} * m.head_dim;
    const std::int64_t keys = std::int64_t{m.kv_heads} * m.head_dim;
    Matrices list{{"qkv_proj", kMixers, (m.output_gate ? 2 : 1) * queries + 2 * keys, h}};
    if (m.qk_norm) list.push_back(vector_of("qk_norm", 2LL * m.head_dim));
    list.push_back({"o_proj", kMixers, h, queries});
    return list;
}

// `DeepseekV3Attention`, `KimiMLAAttention`.
Matrices mla(const MlaMixer& m, std::int64_t h) {
    const std::int64_t queries = std::int64_t{m.q_heads} * (m.nope_dim + m.rope_dim);
    Matrices list;
    if (m.q_latent > 0) {
        list = {{"q_a_proj", kMixers, m.q_latent, h},
                vector_of("q_a_norm", m.q_latent),
                {"q_b_proj", kMixers, queries, m.q_latent}};
    } else {
        list = {{"q_proj", kMixers, queries, h}};
    }
    list.push_back({"kv_a_proj", kMixers, std::int64_t{m.kv_latent} + m.rope_dim, h});
    list.push_back(vector_of("kv_a_norm", m.kv_latent));
    list.push_back({"kv_b_proj", kMixers, std::int64_t{m.q_heads} * (m.nope_dim + m.v_dim), m.kv_latent});
    list.push_back({"o_proj", kMixers, h, std::int64_t{m.q_heads} * m.v_dim});
    return list;
}

std::int64_t up_rows(Activation activation, std::int64_t width) {
    return activation == Activation::kSwiglu ? 2 * width : width;
}

Matrices dense(const DenseFfn& f, std::int64_t h) {
    return {{"up", kFfn, up_rows(f.activation, f.width), h}, {"down", kFfn, h, f.width}};
}

// `Qwen3NextSparseMoeBlock`, `NemotronHMOE` (latent projections around the routed experts),
// `KimiSparseMoeBlock`.
Matrices moe(const MoeFfn& f, std::int64_t h) {
    const std::int64_t in = f.latent > 0 ? f.latent : h;
    const std::int64_t held = f.experts_held();
    Matrices list;
    if (f.shared_width > 0) {
        list = {{"shared_up", kFfn, up_rows(f.activation, f.shared_width), h},
                {"shared_down", kFfn, h, f.shared_width}};
        if (f.shared_gate) list.push_back({"shared_gate", kOther, 1, h});
    }
    list.push_back({"router", kOther, f.experts, h});
    if (f.router_bias) list.push_back(vector_of("router_bias", f.experts));
    if (f.latent > 0) list.push_back({"latent_down", kFfn, f.latent, h});
    list.push_back({"experts_up", kExperts, up_rows(f.activation, f.expert_width), in, held, f.top_k});
    list.push_back({"experts_down", kExperts, in, f.expert_width, held, f.top_k});
    if (f.latent > 0) list.push_back({"latent_up", kFfn, h, f.latent});
    return list;
}

WeightCount count(const Matrices& list, const ModelSpec& model) {
    WeightCount sum;
    for (const WeightMatrix& m : list) {
        const WeightFormat& format = model.formats[static_cast<std::size_t>(m.group)];
        sum += {m.copies * m.rows * m.cols, m.active * m.rows * m.cols,
                m.copies * matrix_bytes(m.rows, m.cols, format)};
    }
    return sum;
}

}  // namespace

Matrices weights(const LinearMixer& mixer, std::int64_t hidden) {
    switch (mixer.family) {
        case Family::kGdn:
            return gdn(mixer, hidden);
        case Family::kKda:
            return kda(mixer, hidden);
        case Family::kMamba2:
            return mamba2(mixer, hidden);
        case Family::kLightning:
            return lightning(mixer, hidden);
    }
    return {};
}

Matrices weights(const Attention& mixer, std::int64_t hidden) {
    const auto* grouped = std::get_if<GqaMixer>(&mixer);
    return grouped != nullptr ? gqa(*grouped, hidden) : mla(std::get<MlaMixer>(mixer), hidden);
}

Matrices weights(const Ffn& ffn, std::int64_t hidden) {
    const auto* plain = std::get_if<DenseFfn>(&ffn);
    return plain != nullptr ? dense(*plain, hidden) : moe(std::get<MoeFfn>(ffn), hidden);
}

Bytes matrix_bytes(std::int64_t rows, std::int64_t cols, const WeightFormat& format) {
    const std::int64_t bits = rows * cols * kElementBits[static_cast<std::size_t>(format.type)];
    std::int64_t scales = 0;
    if (format.block_rows > 0)
        scales = ceil_div(rows, format.block_rows) * ceil_div(cols, format.block_cols) * format.scale_bytes;
    return Bytes(ceil_div(bits, 8) + scales);
}

WeightCount& WeightCount::operator+=(const WeightCount& other) {
    parameters += other.parameters;
    active += other.active;
    bytes += other.bytes;
    return *this;
}

WeightCount operator*(const WeightCount& count, std::int64_t times) {
    return {count.parameters * times, count.active * times, count.bytes * times};
}

WeightCount LayerWeights::total() const {
    WeightCount sum = linear;
    sum += attention;
    sum += ffn;
    return sum += norms;
}

LayerWeights layer_weights(const ModelSpec& model, const LayerKind& kind) {
    LayerWeights layer;
    if (kind.linear) layer.linear = count(weights(*kind.linear, model.hidden), model);
    if (kind.attention) layer.attention = count(weights(*kind.attention, model.hidden), model);
    if (kind.ffn) layer.ffn = count(weights(*kind.ffn, model.hidden), model);
    layer.norms = count({vector_of("norm", model.hidden)}, model) * kind.sublayers();
    return layer;
}

WeightCount ModelWeights::text() const {
    WeightCount sum = body;
    sum += embedding;
    return sum += head;
}

WeightCount ModelWeights::total() const {
    WeightCount sum = text();
    return sum += mtp;
}

ModelWeights model_weights(const ModelSpec& model) {
    const std::int64_t h = model.hidden;
    const WeightCount norm = count({vector_of("norm", h)}, model);
    ModelWeights sum;
    for (const LayerKind& kind : model.kinds)
        sum.body += layer_weights(model, kind).total() * model.count(kind);
    sum.body += norm;
    sum.embedding = count({{"embedding", kEmbedding, model.vocab, h}}, model);
    if (!model.tied_embeddings) sum.head = count({{"head", kHead, model.vocab, h}}, model);
    if (!model.mtp_pattern.empty()) {
        // Norms of hidden state and embedding, the projection of both to hidden, its layers, a final norm.
        sum.mtp = count({{"mtp_proj", kOther, h, 2 * h}}, model);
        sum.mtp += norm * 3;
        for (const char letter : model.mtp_pattern)
            sum.mtp += layer_weights(model, model.kind(letter)).total();
    }
    return sum;
}

Bytes weight_bytes(const ModelSpec& model) {
    return model_weights(model).text().bytes;
}

}  // namespace kvsim
