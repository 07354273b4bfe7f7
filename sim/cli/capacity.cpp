// kvsim capacity: what a request occupies, how many fit, and why no more.
#include "sim/memory/capacity.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/cli/capacity_table.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/setup.hpp"
#include "sim/config/locate.hpp"

namespace kvsim {
namespace {

constexpr int kDefaultBuffer = 16;  // of buffered alternatives to an experiment that buffers nothing
const std::vector<int> kDefaultDrafts{0, 1, 3, 7};

struct CapacityOptions {
    FileOptions input;
    std::optional<std::int64_t> tokens;
    std::vector<int> drafts;
    bool compare = false;
    bool json = false;
};

CapacityAnswer answer(Experiment experiment, Form form, int drafts, std::int64_t tokens) {
    LinearServing& linear = experiment.linear;
    linear.form = with_drafts(form, drafts);
    linear.drafts = drafts;
    const bool buffers = form == Form::kBuffered;
    if (buffers && linear.buffer_length == 1) linear.buffer_length = kDefaultBuffer;
    if (!buffers) linear.buffer_length = 1;
    const Capacity capacity = solve_capacity(experiment, tokens);
    return {std::move(experiment), tokens, capacity};
}

// The experiment's own engine, as it is set, then the others of the configs folders.
std::vector<Experiment> engines_of(const CapacityOptions& options) {
    const std::vector<Override> overrides = parse_assignments(options.input.assignments);
    std::vector<Experiment> experiments{load_experiment(options.input.file, overrides)};
    const std::string own = experiments[0].engine.name;
    for (const std::string& engine : ConfigFolders(options.input.file).names(FileKind::kEngine)) {
        if (engine == own) continue;
        Experiment other = experiments[0];
        other.engine = load_experiment(options.input.file, {{"engine", engine}}).engine;
        experiments.push_back(std::move(other));
    }
    return experiments;
}

ExitCode compare(const CapacityOptions& options) {
    const std::vector<int>& drafts = options.drafts.empty() ? kDefaultDrafts : options.drafts;
    for (std::size_t i = 1; i < drafts.size(); ++i) {
        if (std::find(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(i), drafts[i]) !=
            drafts.begin() + static_cast<std::ptrdiff_t>(i))
            throw_mistake({"--drafts"}, "", fmt::format("{} comes twice", drafts[i]));
    }
    const std::vector<Experiment> experiments = engines_of(options);
    const std::int64_t tokens = options.tokens ? *options.tokens : mean_tokens_per_request(experiments[0]);
    std::vector<CapacityAnswer> answers;
    for (const Experiment& experiment : experiments) {
        for (const int k : drafts) {
            for (const Form form : {Form::kRecurrent, Form::kBuffered})
                answers.push_back(answer(experiment, form, k, tokens));
        }
    }
    if (options.json) {
        fmt::print("{}\n", comparison_json(answers).dump(2));
    } else {
        fmt::print("{}", comparison_table(answers));
    }
    return ExitCode::kGood;
}

ExitCode capacity(const CapacityOptions& options) {
    if (options.compare) return compare(options);
    if (options.drafts.size() > 1)
        throw_mistake({"--drafts"}, "",
                      fmt::format("expected one number without --compare, got {}", options.drafts.size()));
    Experiment experiment = load_experiment(options.input);
    const std::int64_t tokens = options.tokens ? *options.tokens : mean_tokens_per_request(experiment);
    const Form form = experiment.linear.form;
    const int drafts = options.drafts.empty() ? experiment.linear.drafts : options.drafts[0];
    const CapacityAnswer result = answer(std::move(experiment), form, drafts, tokens);
    if (options.json) {
        fmt::print("{}\n", to_json(result).dump(2));
    } else {
        fmt::print("{}", to_table(result));
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_capacity(CLI::App& app) {
    const auto options = std::make_shared<CapacityOptions>();
    add_file_options(app, options->input, "Experiment (YAML)");
    app.add_option(
           "--tokens", options->tokens,
           "Prompt + output tokens of a request (default: context + 1 of a steady workload, else the mean)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
    app.add_option(
           "--drafts", options->drafts,
           fmt::format("Draft tokens that a step verifies beside the last one (default: the experiment's); several, as in "
                       "--drafts 0,3, with --compare (default there: {})",
                       fmt::join(kDefaultDrafts, ",")))
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(0, 64));
    app.add_flag(
        "--compare", options->compare,
        "All engines, with and without a buffer, side by side: recurrent and buffered decode, verification "
        "with stored states and buffered");
    app.add_flag("--json", options->json, "Print JSON");
    return [options](std::span<const std::string>) { return capacity(*options); };
}

}  // namespace kvsim
