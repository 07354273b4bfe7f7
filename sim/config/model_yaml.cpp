#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include "sim/config/schema.hpp"
#include "sim/config/supported.hpp"

namespace kvsim {

namespace {

constexpr std::array<std::string_view, 2> kFfnKindNames{"dense", "moe"};

// Generous bounds that keep every product of sizes within 64 bits: a model at all limits has 2^60 parameters.
constexpr IntRange kLayers{1, 1 << 10};
constexpr IntRange kHidden{1, 1 << 16};
constexpr IntRange kWidth{1, 1 << 20};
constexpr IntRange kVocab{1, 1 << 24};
constexpr IntRange kHeads{1, 1 << 12};
constexpr IntRange kHeadDim{1, 1 << 12};
constexpr IntRange kExperts{1, 1 << 12};
constexpr IntRange kConvKernel{1, 64};

LinearLayerSpec read_linear_layer(const YamlCursor& map) {
    LinearLayerSpec linear;
    linear.family = map.at("family").choice<Family>(kSupportedFamilies);
    linear.k_heads = map.at("k_heads").small_integer(kHeads, 1);
    const YamlCursor v_heads = map.at("v_heads");
    linear.v_heads = v_heads.small_integer(kHeads, linear.k_heads);
    if (linear.v_heads % linear.k_heads != 0) {
        v_heads.mistake(
            fmt::format("expected a multiple of k_heads ({}), got {}", linear.k_heads, linear.v_heads));
    }
    linear.k_dim = map.at("k_dim").small_integer(kHeadDim);
    linear.v_dim = map.at("v_dim").small_integer(kHeadDim);
    linear.conv_kernel = map.at("conv_kernel").small_integer(kConvKernel);
    return linear;
}

AttentionSpec read_attention(const YamlCursor& map) {
    AttentionSpec attention;
    const YamlCursor q_heads = map.at("q_heads");
    attention.kv_heads = map.at("kv_heads").small_integer(kHeads, 1);
    attention.q_heads = q_heads.small_integer(kHeads, attention.kv_heads);
    if (attention.q_heads % attention.kv_heads != 0) {
        q_heads.mistake(fmt::format("expected a multiple of kv_heads ({}), got {}", attention.kv_heads,
                                    attention.q_heads));
    }
    attention.head_dim = map.at("head_dim").small_integer(kHeadDim);
    return attention;
}

FfnSpec read_ffn(const YamlCursor& map) {
    FfnSpec ffn;
    const std::optional<std::size_t> kind = map.at("kind").choice_index(kFfnKindNames);
    if (!kind) {
        map.ignore_rest();
        return ffn;
    }
    ffn.kind = static_cast<FfnKind>(*kind);
    if (ffn.kind == FfnKind::kDense) {
        ffn.intermediate = map.at("intermediate").small_integer(kWidth);
        return ffn;
    }
    ffn.experts = map.at("experts").small_integer(kExperts, static_cast<int>(kExperts.max));
    const YamlCursor top_k = map.at("top_k");
    ffn.top_k = top_k.small_integer(kExperts, 1);
    if (ffn.top_k > ffn.experts) {
        top_k.mistake(
            fmt::format("expected at most the number of experts ({}), got {}", ffn.experts, ffn.top_k));
    }
    ffn.expert_intermediate = map.at("expert_intermediate").small_integer(kWidth);
    ffn.shared_intermediate = map.find("shared_intermediate").small_integer({0, kWidth.max}, 0);
    return ffn;
}

}  // namespace

ModelSpec read_model(const YamlCursor& map) {
    ModelSpec model;
    model.name = read_name(map.at("name"));
    const YamlCursor layers = map.at("layers");
    model.linear_layers = layers.at("linear").small_integer(kLayers);
    model.full_layers = layers.at("full").small_integer(kLayers);
    model.hidden = map.at("hidden").small_integer(kHidden);
    model.vocab = map.at("vocab").small_integer(kVocab);
    model.tied_embeddings = map.at("tied_embeddings").boolean();
    model.linear = read_linear_layer(map.at("linear"));
    model.attention = read_attention(map.at("attention"));
    model.ffn = read_ffn(map.at("ffn"));
    return model;
}

void write_model(YAML::Emitter& out, const ModelSpec& model) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::BeginMap;
    pair("name", model.name);
    out << YAML::Key << "layers" << YAML::Value << YAML::Flow << YAML::BeginMap;
    pair("linear", model.linear_layers);
    pair("full", model.full_layers);
    out << YAML::EndMap;
    pair("hidden", model.hidden);
    pair("vocab", model.vocab);
    pair("tied_embeddings", model.tied_embeddings);
    out << YAML::Key << "linear" << YAML::Value << YAML::Flow << YAML::BeginMap;
    pair("family", std::string(name(model.linear.family)));
    pair("k_heads", model.linear.k_heads);
    pair("v_heads", model.linear.v_heads);
    pair("k_dim", model.linear.k_dim);
    pair("v_dim", model.linear.v_dim);
    pair("conv_kernel", model.linear.conv_kernel);
    out << YAML::EndMap;
    out << YAML::Key << "attention" << YAML::Value << YAML::Flow << YAML::BeginMap;
    pair("q_heads", model.attention.q_heads);
    pair("kv_heads", model.attention.kv_heads);
    pair("head_dim", model.attention.head_dim);
    out << YAML::EndMap;
    out << YAML::Key << "ffn" << YAML::Value << YAML::Flow << YAML::BeginMap;
    pair("kind", std::string(kFfnKindNames[static_cast<std::size_t>(model.ffn.kind)]));
    if (model.ffn.kind == FfnKind::kDense) {
        pair("intermediate", model.ffn.intermediate);
    } else {
        pair("experts", model.ffn.experts);
        pair("top_k", model.ffn.top_k);
        pair("expert_intermediate", model.ffn.expert_intermediate);
        pair("shared_intermediate", model.ffn.shared_intermediate);
    }
    out << YAML::EndMap << YAML::EndMap;
}

}  // namespace kvsim
