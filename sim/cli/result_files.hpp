// The files of a results folder. A single run is a sweep of one point without axes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/cli/output_folder.hpp"
#include "sim/cli/run_experiment.hpp"
#include "sim/config/experiment.hpp"

namespace kvsim {

// One row per point: swept keys, status, reason, then all fields of the result, empty where there is none.
// Holds nothing that differs between two runs of the same program.
std::string runs_csv(const Sweep& sweep, std::span<const RunOutcome> outcomes);

// make_manifest() with the files that were read, and the linear layer of a rank where it is the same in
// all runs, at least one: what a figure needs to find its measured rows. Parts that the experiment names
// stand in resolved.yaml.
std::string manifest_json(std::span<const std::string> command_line, const Experiment& base,
                          std::span<const Experiment> runs, std::vector<std::string> files);

// The experiment, or for a sweep the base experiment and the values of each axis.
std::string resolved_yaml(const Sweep& sweep, const Experiment& base);

}  // namespace kvsim
