// Model descriptions from Hugging Face: config.json to ModelSpec.
#pragma once

#include <string>
#include <vector>

#include "sim/model/model.hpp"

namespace kvsim {

struct ImportedModel {
    ModelSpec model;
    // Fields of config.json that were not understood, as key paths, and what they leave open.
    std::vector<std::string> not_understood;
    std::vector<std::string> remarks;
};

// Reads a config.json of a type in import_types(). `name` becomes the model's. Throws ConfigError with the
// file and key of everything that is missing, of a wrong type, or beyond what a model file describes.
ImportedModel import_model(const std::string& file, const std::string& name);

// Values of model_type that import_model() knows.
std::vector<std::string_view> import_types();

}  // namespace kvsim
