// kvsim: subcommands and exit codes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/version.hpp"

namespace {

using namespace kvsim;

// To stderr, which may be closed: then the exit code alone has to say it.
void complain(const std::string& text) {
    std::fputs((text + '\n').c_str(), stderr);
}

ExitCode run_command(const Action& action, const std::vector<std::string>& command_line) {
    try {
        const ExitCode code = action(command_line);
        if (std::fflush(stdout) != 0) throw std::runtime_error("cannot write to standard output");
        return code;
    } catch (const ConfigError& error) {
        complain(error.what());
        return ExitCode::kBadInput;
    } catch (const std::exception& error) {
        complain(fmt::format("kvsim: {}", error.what()));
        return ExitCode::kRunFailed;
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Simulator and cost model for serving linear-attention language models", "kvsim"};
    app.set_version_flag("--version", fmt::format("kvsim {} ({})", version(), git_revision()));
    app.require_subcommand(0,
                           1);  // none is handled below: CLI11 would hide a misspelt one behind its absence
    std::vector<std::pair<CLI::App*, Action>> actions;
    for (const Command& command : commands()) {
        CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.help));
        actions.emplace_back(sub, command.declare(*sub));
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {  // also --help and --version, which are no errors
        return static_cast<int>(app.exit(error) == 0 ? ExitCode::kGood : ExitCode::kBadInput);
    }
    for (const auto& [sub, action] : actions) {
        if (sub->parsed()) return static_cast<int>(run_command(action, {argv, argv + argc}));
    }
    fmt::print(stderr, "{}", app.help());
    return static_cast<int>(ExitCode::kBadInput);
}
