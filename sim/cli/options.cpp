#include "sim/cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"

namespace kvsim {

void add_file_options(CLI::App& app, FileOptions& options, const std::string& file_help) {
    app.add_option("FILE", options.file, file_help)->required();
    // One value per --set: a list would swallow FILE when it comes last.
    app.add_option("--set", options.assignments,
                   "Change a key of the experiment, as in --set linear.buffer_length=16")
        ->type_name("PATH=VALUE")
        ->allow_extra_args(false);
}

std::vector<Override> parse_assignments(const std::vector<std::string>& assignments) {
    std::vector<Override> overrides;
    std::vector<Mistake> mistakes;
    for (const std::string& text : assignments) {
        const std::size_t equals = text.find('=');
        const auto refuse = [&](std::string message) {
            Mistake& mistake = mistakes.emplace_back();
            mistake.place.file = "--set";
            mistake.message = std::move(message);
        };
        if (equals == std::string::npos || equals == 0) {
            refuse(fmt::format("expected path=value, got `{}`", text));
            continue;
        }
        const std::string path = text.substr(0, equals);
        if (path == "schema") refuse("schema says how the file is written, and cannot be set");
        if (std::ranges::find(overrides, path, &Override::first) != overrides.end())
            refuse(fmt::format("{} is set twice", path));
        overrides.emplace_back(path, text.substr(equals + 1));
    }
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
    return overrides;
}

Experiment load_experiment(const FileOptions& options) {
    return load_experiment(options.file, parse_assignments(options.assignments));
}

}  // namespace kvsim
