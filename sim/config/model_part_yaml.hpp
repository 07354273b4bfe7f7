// Parts of a model as YAML, one map each: `linear: {type: gdn, k_heads: 16, ...}`.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "sim/config/yaml.hpp"
#include "sim/model/model.hpp"

namespace YAML {
class Emitter;
}

namespace kvsim {

using ModelPart = std::variant<LinearMixer, GqaMixer, MlaMixer, DenseFfn, MoeFfn>;

// The part that `map` describes; empty, with the mistake noted, when its type is not known.
std::optional<ModelPart> read_part(const YamlCursor& map, const std::string& name);

// Key and value.
void write_part(YAML::Emitter& out, const ModelPart& part);

}  // namespace kvsim
