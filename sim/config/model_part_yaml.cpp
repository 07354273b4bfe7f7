#include "sim/config/model_part_yaml.hpp"

#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include "sim/config/schema.hpp"
#include "sim/config/supported.hpp"

namespace kvsim {

namespace {

// Generous bounds that keep every product of sizes within 64 bits: a model at all limits has 2^60 parameters.
constexpr IntRange kLatent{1, 1 << 16};
constexpr IntRange kOptionalLatent{0, 1 << 16};
constexpr IntRange kWidth{1, 1 << 20};
constexpr IntRange kOptionalWidth{0, 1 << 20};
constexpr IntRange kHeads{1, 1 << 12};
constexpr IntRange kHeadDim{1, 1 << 12};
constexpr IntRange kOptionalDim{0, 1 << 12};
constexpr IntRange kExperts{1, 1 << 12};
constexpr IntRange kConvKernel{0, 64};

// In the order of kPartTypeNames; linear mixers first, as in Family.
enum class PartType : std::uint8_t { kGdn, kKda, kMamba2, kLightning, kGqa, kMla, kDense, kMoe };
static_assert(static_cast<std::size_t>(PartType::kGqa) == kFamilyCount);
static_assert(static_cast<std::size_t>(PartType::kMoe) + 1 == kPartTypeNames.size());

LinearMixer read_linear_mixer(const YamlCursor& map, std::string name, Family family) {
    LinearMixer m;
    m.name = std::move(name);
    m.family = family;
    m.k_heads = map.at("k_heads").small_integer(kHeads, 1);
    const YamlCursor v_heads = map.at("v_heads");
    m.v_heads = v_heads.small_integer(kHeads, m.k_heads);
    if (m.v_heads % m.k_heads != 0) {
        v_heads.mistake(fmt::format("expected a multiple of k_heads ({}), got {}", m.k_heads, m.v_heads));
    }
    if (family == Family::kLightning && m.v_heads != m.k_heads)
        v_heads.mistake(fmt::format("expected as many as k_heads ({}), got {}", m.k_heads, m.v_heads));
    m.k_dim = map.at("k_dim").small_integer(kHeadDim);
    m.v_dim = map.at("v_dim").small_integer(kHeadDim);
    m.conv_kernel = map.at("conv_kernel").small_integer(kConvKernel);
    m.conv_bias = map.find("conv_bias").boolean(false);
    m.gated_norm = map.find("gated_norm").boolean(true);
    return m;
}

GqaMixer read_gqa(const YamlCursor& map, std::string name) {
    GqaMixer m;
    m.name = std::move(name);
    const YamlCursor q_heads = map.at("q_heads");
    m.kv_heads = map.at("kv_heads").small_integer(kHeads, 1);
    m.q_heads = q_heads.small_integer(kHeads, m.kv_heads);
    if (m.q_heads % m.kv_heads != 0) {
        q_heads.mistake(fmt::format("expected a multiple of kv_heads ({}), got {}", m.kv_heads, m.q_heads));
    }
    m.head_dim = map.at("head_dim").small_integer(kHeadDim);
    m.output_gate = map.at("output_gate").boolean();
    m.qk_norm = map.at("qk_norm").boolean();
    m.rope = map.at("rope").boolean();
    return m;
}

MlaMixer read_mla(const YamlCursor& map, std::string name) {
    MlaMixer m;
    m.name = std::move(name);
    m.q_heads = map.at("q_heads").small_integer(kHeads);
    m.q_latent = map.find("q_latent").small_integer(kOptionalLatent, 0);
    m.kv_latent = map.at("kv_latent").small_integer(kLatent);
    m.nope_dim = map.at("nope_dim").small_integer(kHeadDim);
    m.rope_dim = map.at("rope_dim").small_integer(kOptionalDim);
    m.v_dim = map.at("v_dim").small_integer(kHeadDim);
    m.rope = map.at("rope").boolean();
    return m;
}

DenseFfn read_dense(const YamlCursor& map, std::string name) {
    DenseFfn f;
    f.name = std::move(name);
    f.width = map.at("width").small_integer(kWidth);
    f.activation = map.at("activation").choice<Activation>(kActivationNames);
    return f;
}

MoeFfn read_moe(const YamlCursor& map, std::string name) {
    MoeFfn f;
    f.name = std::move(name);
    f.experts = map.at("experts").small_integer(kExperts, static_cast<int>(kExperts.max));
    const YamlCursor top_k = map.at("top_k");
    f.top_k = top_k.small_integer(kExperts, 1);
    if (f.top_k > f.experts) {
        top_k.mistake(fmt::format("expected at most the number of experts ({}), got {}", f.experts, f.top_k));
    }
    f.expert_width = map.at("expert_width").small_integer(kWidth);
    f.shared_width = map.find("shared_width").small_integer(kOptionalWidth, 0);
    f.latent = map.find("latent").small_integer(kOptionalLatent, 0);
    const YamlCursor shared_gate = map.find("shared_gate");
    f.shared_gate = shared_gate.boolean(false);
    if (f.shared_gate && f.shared_width == 0)
        shared_gate.mistake("expected false, because there is no shared expert");
    f.router_bias = map.find("router_bias").boolean(false);
    f.activation = map.at("activation").choice<Activation>(kActivationNames);
    if (const YamlCursor power_law = map.find("power_law"); power_law.present())
        f.power_law = power_law.real({.min = 0.0, .max = 10.0});
    return f;
}

// One part as a map in one line; keys as in its reader.
class PartWriter {
  public:
    explicit PartWriter(YAML::Emitter& out) : out_(out) {}

    void operator()(const LinearMixer& m) const {
        begin(m.name, name(m.family));
        pair("k_heads", m.k_heads);
        pair("v_heads", m.v_heads);
        pair("k_dim", m.k_dim);
        pair("v_dim", m.v_dim);
        pair("conv_kernel", m.conv_kernel);
        pair("conv_bias", m.conv_bias);
        pair("gated_norm", m.gated_norm);
        out_ << YAML::EndMap;
    }
    void operator()(const GqaMixer& m) const {
        begin(m.name, type(PartType::kGqa));
        pair("q_heads", m.q_heads);
        pair("kv_heads", m.kv_heads);
        pair("head_dim", m.head_dim);
        pair("output_gate", m.output_gate);
        pair("qk_norm", m.qk_norm);
        pair("rope", m.rope);
        out_ << YAML::EndMap;
    }
    void operator()(const MlaMixer& m) const {
        begin(m.name, type(PartType::kMla));
        pair("q_heads", m.q_heads);
        pair("q_latent", m.q_latent);
        pair("kv_latent", m.kv_latent);
        pair("nope_dim", m.nope_dim);
        pair("rope_dim", m.rope_dim);
        pair("v_dim", m.v_dim);
        pair("rope", m.rope);
        out_ << YAML::EndMap;
    }
    void operator()(const DenseFfn& f) const {
        begin(f.name, type(PartType::kDense));
        pair("width", f.width);
        pair("activation", activation(f.activation));
        out_ << YAML::EndMap;
    }
    void operator()(const MoeFfn& f) const {
        begin(f.name, type(PartType::kMoe));
        pair("experts", f.experts);
        pair("top_k", f.top_k);
        pair("expert_width", f.expert_width);
        pair("shared_width", f.shared_width);
        pair("latent", f.latent);
        pair("shared_gate", f.shared_gate);
        pair("router_bias", f.router_bias);
        pair("activation", activation(f.activation));
        if (f.power_law) pair("power_law", shortest(*f.power_law));
        out_ << YAML::EndMap;
    }

  private:
    static std::string_view type(PartType t) { return kPartTypeNames[static_cast<std::size_t>(t)]; }
    static std::string activation(Activation a) {
        return std::string(kActivationNames[static_cast<std::size_t>(a)]);
    }
    void begin(const std::string& part, std::string_view type_word) const {
        out_ << YAML::Key << part << YAML::Value << YAML::Flow << YAML::BeginMap;
        pair("type", std::string(type_word));
    }
    template <class T>
    void pair(const char* key, const T& value) const {
        out_ << YAML::Key << key << YAML::Value << value;
    }

    YAML::Emitter& out_;
};

}  // namespace

std::optional<ModelPart> read_part(const YamlCursor& map, const std::string& name) {
    const std::optional<std::size_t> type = map.at("type").choice_index(kPartTypeNames);
    if (!type) {
        map.ignore_rest();
        return std::nullopt;
    }
    switch (static_cast<PartType>(*type)) {
        case PartType::kGdn:
        case PartType::kKda:
        case PartType::kMamba2:
        case PartType::kLightning:
            return read_linear_mixer(map, name, static_cast<Family>(*type));
        case PartType::kGqa:
            return read_gqa(map, name);
        case PartType::kMla:
            return read_mla(map, name);
        case PartType::kDense:
            return read_dense(map, name);
        case PartType::kMoe:
            return read_moe(map, name);
    }
    return std::nullopt;
}

void write_part(YAML::Emitter& out, const ModelPart& part) {
    std::visit(PartWriter(out), part);
}

}  // namespace kvsim
