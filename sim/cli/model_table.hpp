// A model as `kvsim model show` prints it.
#pragma once

#include <string>

#include "sim/model/model.hpp"

namespace kvsim {

// `rank` is the share of `model` that is shown: rank_model() of it, or the model itself.
std::string model_table(const ModelSpec& model, const ModelSpec& rank);
std::string model_json(const ModelSpec& model, const ModelSpec& rank);

}  // namespace kvsim
