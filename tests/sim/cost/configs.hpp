// Committed models and engines, for tests that price all of them.
#pragma once

#include <string>

#include "tests/sim/model/support.hpp"

namespace kvsim::testing {

inline EngineSteps committed_engine(const std::string& name) {
    return load_experiment(KVSIM_SOURCE_DIR "/configs/experiments/steady_decode.yaml", {{"engine", name}})
        .engine.steps;
}

}  // namespace kvsim::testing
