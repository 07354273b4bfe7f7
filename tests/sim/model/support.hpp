// Committed models for the tests of sim/model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sim/config/experiment.hpp"

namespace kvsim::testing {

inline ModelSpec committed(const std::string& name) {
    return load_model(KVSIM_SOURCE_DIR "/configs/models/" + name + ".yaml");
}

inline std::vector<ModelSpec> all_committed() {
    std::vector<ModelSpec> models;
    for (const auto& file : std::filesystem::directory_iterator(KVSIM_SOURCE_DIR "/configs/models"))
        models.push_back(load_model(file.path().string()));
    return models;
}

}  // namespace kvsim::testing
