#include "sim/model/model.hpp"

#include <algorithm>

#include "sim/base/check.hpp"

namespace kvsim {

namespace {

template <class Has>
int layers_with(const ModelSpec& model, Has has) {
    int layers = 0;
    for (const LayerKind& kind : model.kinds) {
        if (has(kind)) layers += model.count(kind);
    }
    return layers;
}

}  // namespace

int ModelSpec::count(const LayerKind& kind) const {
    return static_cast<int>(std::ranges::count(pattern, kind.letter));
}

const LayerKind& ModelSpec::kind(char letter) const {
    const auto found = std::ranges::find(kinds, letter, &LayerKind::letter);
    KVSIM_CHECK(found != kinds.end(), "{}: no kind of layer has the letter {}", name, letter);
    return *found;
}

int linear_layers(const ModelSpec& model) {
    return layers_with(model, [](const LayerKind& kind) { return kind.linear.has_value(); });
}

int attention_layers(const ModelSpec& model) {
    return layers_with(model, [](const LayerKind& kind) { return kind.attention.has_value(); });
}

const LinearMixer* linear_mixer(const ModelSpec& model) {
    for (const LayerKind& kind : model.kinds) {
        if (kind.linear) return &*kind.linear;
    }
    return nullptr;
}

LinearShape linear_shape(const LinearMixer& mixer, StateFormat state, RecordFormat records) {
    return {mixer.family, mixer.k_heads, mixer.v_heads, mixer.k_dim, mixer.v_dim, state, records};
}

std::string_view part_name(const Attention& attention) {
    return std::visit([](const auto& part) -> std::string_view { return part.name; }, attention);
}

std::string_view part_name(const Ffn& ffn) {
    return std::visit([](const auto& part) -> std::string_view { return part.name; }, ffn);
}

}  // namespace kvsim
