// Options that several subcommands share.
#pragma once

#include <string>
#include <vector>

#include "sim/config/experiment.hpp"

namespace CLI {
class App;
}

namespace kvsim {

// FILE and --set path=value, which may come again and again.
struct FileOptions {
    std::string file;
    std::vector<std::string> assignments;
};

void add_file_options(CLI::App& app, FileOptions& options, const std::string& file_help);

// Splits each text at its first '='. Throws ConfigError for a text without one or without a path,
// for a path that comes twice, and for the schema.
std::vector<Override> parse_assignments(const std::vector<std::string>& assignments);

// The experiment that the options name. Throws ConfigError.
Experiment load_experiment(const FileOptions& options);

}  // namespace kvsim
