#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/base/text.hpp"
#include "sim/config/model_part_yaml.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

namespace {

constexpr std::size_t kMostLayers = 1 << 10;
constexpr IntRange kRepeat{1, kMostLayers};
constexpr IntRange kHidden{1, 1 << 16};
constexpr IntRange kVocab{1, 1 << 24};
constexpr IntRange kBlock{1, 1 << 16};
constexpr std::size_t kQuantisedGroups = kWeightGroupCount - 1;  // all but kOther

// Parts by name. A part that could not be read is there without its value, so that naming it is no second
// mistake.
using Parts = std::map<std::string, std::optional<ModelPart>, std::less<>>;

Parts read_parts(const YamlCursor& map) {
    Parts parts;
    bool has_linear = false;
    for (const auto& [name, value] : map.entries()) {
        const std::optional<ModelPart> part = read_part(value, name);
        parts.emplace(name, part);
        if (!part || !std::holds_alternative<LinearMixer>(*part)) continue;
        if (has_linear)
            value.mistake("expected one linear mixer in a model: its form is chosen for all layers");
        has_linear = true;
    }
    return parts;
}

// ---- reading layers --------------------------------------------------------------------------------------

template <class Place, class T>
bool fill(std::optional<Place>& place, const T& value) {
    if (place) return false;
    place = value;
    return true;
}

// Puts a part in its place in a kind; false when that is taken.
struct PartPlacer {
    LayerKind& kind;
    bool operator()(const LinearMixer& m) const { return fill(kind.linear, m); }
    bool operator()(const GqaMixer& m) const { return fill(kind.attention, m); }
    bool operator()(const MlaMixer& m) const { return fill(kind.attention, m); }
    bool operator()(const DenseFfn& f) const { return fill(kind.ffn, f); }
    bool operator()(const MoeFfn& f) const { return fill(kind.ffn, f); }
};

std::vector<LayerKind> read_kinds(const YamlCursor& map, const Parts& parts,
                                  std::set<std::string>& used_parts) {
    std::vector<std::string_view> names;
    for (const auto& [name, part] : parts) names.push_back(name);
    std::vector<LayerKind> kinds;
    for (const auto& [letter, list] : map.entries()) {
        if (letter.size() != 1) list.mistake("expected one character as the name of a kind of layer");
        LayerKind kind;
        kind.letter = letter.empty() ? '?' : letter.front();
        for (const YamlCursor& item : list.items(1)) {
            const std::string name = item.string();
            const auto part = parts.find(name);
            used_parts.insert(name);
            if (part == parts.end()) {
                item.mistake(fmt::format("no part is called `{}`{}; there are: {}", name,
                                         suggestion(name, names), join(names)));
            } else if (part->second && !std::visit(PartPlacer{kind}, *part->second)) {
                item.mistake("expected at most one linear mixer, one attention and one FFN in a layer");
            }
        }
        kinds.push_back(std::move(kind));
    }
    return kinds;
}

// Letters of kinds.
std::string read_pattern(const YamlCursor& value, const std::vector<LayerKind>& kinds) {
    const std::string pattern = value.string();
    std::string unknown;
    for (const char letter : pattern) {
        const bool known = std::ranges::find(kinds, letter, &LayerKind::letter) != kinds.end();
        if (!known && unknown.find(letter) == std::string::npos) unknown += letter;
    }
    if (!unknown.empty()) value.mistake(fmt::format("no kind of layer in `layers` for `{}`", unknown));
    return pattern;
}

void read_layers(const YamlCursor& map, ModelSpec& model) {
    const YamlCursor part_map = map.at("parts");
    const YamlCursor kind_map = map.at("layers");
    const Parts parts = read_parts(part_map);
    std::set<std::string> used_parts;
    model.kinds = read_kinds(kind_map, parts, used_parts);
    const YamlCursor pattern = map.at("pattern");
    const std::string period = read_pattern(pattern, model.kinds);
    const int repeat = map.find("repeat").small_integer(kRepeat, 1);
    if (period.size() * static_cast<std::size_t>(repeat) > kMostLayers) {
        pattern.mistake(fmt::format("expected at most {} layers, got {}", kMostLayers,
                                    period.size() * static_cast<std::size_t>(repeat)));
    } else {
        for (int i = 0; i < repeat; ++i) model.pattern += period;
    }
    if (const YamlCursor mtp = map.find("mtp"); mtp.present())
        model.mtp_pattern = read_pattern(mtp, model.kinds);
    if (model.mtp_pattern.size() > kMostLayers)
        map.find("mtp").mistake(fmt::format("expected at most {} layers", kMostLayers));

    // What nothing uses is a slip, not a setting.
    for (const auto& [name, value] : part_map.entries()) {
        if (!used_parts.contains(name)) value.mistake("no kind of layer uses this part");
    }
    for (const auto& [letter, value] : kind_map.entries()) {
        if ((period + model.mtp_pattern).find(letter) == std::string::npos)
            value.mistake("neither pattern nor mtp uses this kind of layer");
    }
}

// ---- weights ---------------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 3> kScaleNames{"fp32", "bf16", "fp8"};
constexpr std::array<int, 3> kScaleBytes{4, 2, 1};

// A word, or a map with the blocks that share a scale.
WeightFormat read_format(const YamlCursor& value) {
    WeightFormat format;
    if (!value.is_map()) {
        format.type = value.choice<WeightType>(kWeightTypeNames);
        return format;
    }
    format.type = value.at("dtype").choice<WeightType>(kWeightTypeNames);
    const YamlCursor block = value.at("block");
    const std::vector<YamlCursor> sizes = block.items(2);
    if (sizes.size() > 2) block.mistake(fmt::format("expected [rows, columns], got {} values", sizes.size()));
    if (sizes.size() == 2) {
        format.block_rows = sizes[0].small_integer(kBlock, 1);
        format.block_cols = sizes[1].small_integer(kBlock, 1);
    }
    const std::optional<std::size_t> scale = value.at("scale").choice_index(kScaleNames);
    if (scale) format.scale_bytes = kScaleBytes[*scale];
    return format;
}

void read_weights(const YamlCursor& map, ModelSpec& model) {
    if (!map.present()) return;
    for (std::size_t g = 0; g < kQuantisedGroups; ++g)
        if (const YamlCursor format = map.find(kWeightGroupNames[g]); format.present())
            model.formats[g] = read_format(format);
}

// ---- writing ---------------------------------------------------------------------------------------------

// The parts of a model, each once, in the order of its kinds.
std::vector<ModelPart> parts_of(const ModelSpec& model) {
    std::vector<ModelPart> parts;
    const auto add = [&](const ModelPart& part) {
        if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
    };
    for (const LayerKind& kind : model.kinds) {
        if (kind.linear) add(*kind.linear);
        if (kind.attention) std::visit([&](const auto& m) { add(m); }, *kind.attention);
        if (kind.ffn) std::visit([&](const auto& f) { add(f); }, *kind.ffn);
    }
    return parts;
}

// The shortest prefix of a pattern that repeated gives the whole.
std::size_t period_of(const std::string& pattern) {
    for (std::size_t n = 1; n < pattern.size(); ++n) {
        if (pattern.size() % n == 0 &&
            pattern.compare(n, std::string::npos, pattern, 0, pattern.size() - n) == 0)
            return n;
    }
    return pattern.size();
}

void write_format(YAML::Emitter& out, const WeightFormat& format) {
    const std::string type(kWeightTypeNames[static_cast<std::size_t>(format.type)]);
    if (format.block_rows == 0) {
        out << type;
        return;
    }
    const auto scale =
        static_cast<std::size_t>(std::ranges::find(kScaleBytes, format.scale_bytes) - kScaleBytes.begin());
    out << YAML::Flow << YAML::BeginMap << YAML::Key << "dtype" << YAML::Value << type << YAML::Key << "block"
        << YAML::Value << YAML::Flow << YAML::BeginSeq << format.block_rows << format.block_cols
        << YAML::EndSeq << YAML::Key << "scale" << YAML::Value << std::string(kScaleNames[scale])
        << YAML::EndMap;
}

}  // namespace

ModelSpec read_model(const YamlCursor& map) {
    ModelSpec model;
    model.name = read_name(map.at("name"));
    model.hidden = map.at("hidden").small_integer(kHidden);
    model.vocab = map.at("vocab").small_integer(kVocab);
    model.tied_embeddings = map.at("tied_embeddings").boolean();
    read_layers(map, model);
    read_weights(map.find("weights"), model);
    model.state = map.find("state_dtype").choice<StateFormat>(kStateFormatNames, StateFormat::kFp32);
    return model;
}

void write_model(YAML::Emitter& out, const ModelSpec& model) {
    const auto key = [&](const std::string& text) -> YAML::Emitter& {
        return out << YAML::Key << text << YAML::Value;
    };
    out << YAML::BeginMap;
    key("name") << model.name;
    key("hidden") << model.hidden;
    key("vocab") << model.vocab;
    key("tied_embeddings") << model.tied_embeddings;
    key("parts") << YAML::BeginMap;
    for (const ModelPart& part : parts_of(model)) write_part(out, part);
    out << YAML::EndMap;
    key("layers") << YAML::BeginMap;
    for (const LayerKind& kind : model.kinds) {
        key(std::string(1, kind.letter)) << YAML::Flow << YAML::BeginSeq;
        if (kind.linear) out << kind.linear->name;
        if (kind.attention) out << std::string(part_name(*kind.attention));
        if (kind.ffn) out << std::string(part_name(*kind.ffn));
        out << YAML::EndSeq;
    }
    out << YAML::EndMap;
    const std::size_t period = period_of(model.pattern);
    key("pattern") << model.pattern.substr(0, period);
    key("repeat") << model.pattern.size() / period;
    if (!model.mtp_pattern.empty()) key("mtp") << model.mtp_pattern;
    key("weights") << YAML::BeginMap;
    for (std::size_t g = 0; g < kQuantisedGroups; ++g)
        write_format(key(std::string(kWeightGroupNames[g])), model.formats[g]);
    out << YAML::EndMap;
    key("state_dtype") << std::string(name(model.state));
    out << YAML::EndMap;
}

}  // namespace kvsim
