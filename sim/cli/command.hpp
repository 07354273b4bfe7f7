// The subcommands of kvsim, as main.cpp sees them: one table of names, help lines and declarations.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace kvsim {

enum class ExitCode : int { kGood = 0, kRunFailed = 1, kBadInput = 2 };

// Does the work of a subcommand once its options are parsed: results to stdout, talk to stderr.
// `command_line` is what the user typed, for the manifest. Throws ConfigError for bad input; any other
// exception means that the run failed.
using Action = std::function<ExitCode(std::span<const std::string> command_line)>;

struct Command {
    std::string_view name;
    std::string_view help;
    Action (*declare)(CLI::App& app);  // adds the options; the action owns what they are parsed into
};

std::span<const Command> commands();

Action declare_run(CLI::App& app);
Action declare_sweep(CLI::App& app);
Action declare_explain(CLI::App& app);
Action declare_linear(CLI::App& app);
Action declare_capacity(CLI::App& app);
Action declare_fit(CLI::App& app);
Action declare_fit_tables(CLI::App& app);
Action declare_validate(CLI::App& app);
Action declare_validate_steps(CLI::App& app);
Action declare_model(CLI::App& app);
Action declare_list(CLI::App& app);

}  // namespace kvsim
