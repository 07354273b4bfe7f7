// An experiment: everything that one run needs, resolved from YAML files and --set overrides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/device.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/memory/serving_spec.hpp"
#include "sim/model/model.hpp"
#include "sim/model/rank.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

struct Experiment {
    std::string name;
    ModelSpec model;
    DeviceSpec device;
    EngineSpec engine;
    Parallelism parallelism;  // of one replica; the device is that of every rank
    LinearServing linear;
    ServingSpec serving;  // speculation, replicas, objectives
    WorkloadSpec workload;
    std::uint64_t seed = 1;
    std::optional<Time> horizon;  // stop here; without one a run ends with its last request
    std::string profile_dir;      // folder that holds the device's fit.yaml
};

// `path=value` of --set, and the assignments of a sweep point.
using Override = std::pair<std::string, std::string>;

// Reads an experiment with its model, device and engine files. Throws ConfigError with every mistake found.
Experiment load_experiment(const std::string& file, const std::vector<Override>& overrides = {});

// The experiment with nothing left to look up: every default and substitution written out. Reading it back
// gives the same experiment.
std::string to_yaml(const Experiment& experiment);

// Reads a model file: a name, looked up from the working directory as `kvsim list models` does, or a path.
// Throws ConfigError with every mistake found.
ModelSpec load_model(const std::string& reference);

// A model file that reads back as `model`.
std::string to_yaml(const ModelSpec& model);

struct SweepPoint {
    std::vector<Override> assignments;  // in the order of the axes
};

struct Sweep {
    std::string name;
    std::string experiment_file;
    std::vector<std::string> axes;   // key paths, first varies slowest
    std::vector<SweepPoint> points;  // Cartesian product in file order
};

// Reads a sweep and checks that every point loads. Throws ConfigError.
Sweep load_sweep(const std::string& file);

}  // namespace kvsim
