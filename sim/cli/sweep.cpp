// kvsim sweep: every point of a sweep, in parallel, one row each.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "sim/base/error.hpp"
#include "sim/base/thread_pool.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/result_files.hpp"

namespace kvsim {
namespace {

struct SweepOptions {
    FileOptions input;
    std::string out;
    int jobs = 0;
};

// A line on stderr that counts finished runs; silent unless somebody watches.
class Progress {
  public:
    explicit Progress(std::size_t total) : total_(total), shown_(isatty(STDERR_FILENO) == 1) {}
    ~Progress() {
        if (shown_) fmt::print(stderr, "\r\033[K");
    }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void advance() {
        if (!shown_) return;
        const std::lock_guard lock(mutex_);
        constexpr std::size_t kWidth = 40;
        const std::size_t filled = kWidth * ++done_ / total_;
        fmt::print(stderr, "\r[{:<{}}] {}/{}", std::string(filled, '#'), kWidth, done_, total_);
    }

  private:
    std::size_t total_;
    std::size_t done_ = 0;
    bool shown_;
    std::mutex mutex_;
};

int default_jobs() {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// --set changes the base experiment; a swept key would be set twice.
void require_not_swept(const std::vector<Override>& overrides, const Sweep& sweep) {
    for (const auto& [path, value] : overrides) {
        for (const std::string& axis : sweep.axes) {
            if (path == axis || path.starts_with(axis + ".")) {
                throw_mistake({fmt::format("--set {}={}", path, value)}, path,
                              fmt::format("the axis `{}` of the sweep sets this key", axis));
            }
        }
    }
}

std::vector<Experiment> load_points(const Sweep& sweep, const std::vector<Override>& overrides) {
    std::vector<Experiment> experiments;
    for (const SweepPoint& point : sweep.points) {
        std::vector<Override> assignments = overrides;
        assignments.insert(assignments.end(), point.assignments.begin(), point.assignments.end());
        experiments.push_back(load_experiment(sweep.experiment_file, assignments));
    }
    return experiments;
}

// One point; what only shows in running, such as a rate whose last arrival is beyond all time, fails it
// alone.
RunOutcome run_point(const Experiment& experiment, std::optional<ConfigError>& refused) {
    try {
        RunOutcome outcome = run_experiment(experiment);
        if (outcome.result) outcome.result->finished = {};  // 64 bytes per request, which no row shows
        return outcome;
    } catch (const ConfigError& error) {
        refused = error;
        return {RunStatus::kFailed, error.what(), "", std::nullopt};
    }
}

// Talk about the runs without a result; true when one failed.
bool report_misses(const Sweep& sweep, const std::vector<RunOutcome>& outcomes) {
    bool failed = false;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        if (outcomes[i].status == RunStatus::kOk) continue;
        failed |= outcomes[i].status == RunStatus::kFailed;
        std::string point;
        for (const auto& [path, value] : sweep.points[i].assignments)
            point += fmt::format("{}={} ", path, value);
        fmt::print(stderr, "{}{}: {}\n", point, kRunStatusNames[static_cast<std::size_t>(outcomes[i].status)],
                   outcomes[i].reason);
    }
    return failed;
}

ExitCode sweep(const SweepOptions& options, std::span<const std::string> command_line) {
    const Sweep plan = load_sweep(options.input.file);
    const std::vector<Override> overrides = parse_assignments(options.input.assignments);
    require_not_swept(overrides, plan);
    const Experiment base = load_experiment(plan.experiment_file, overrides);
    const std::vector<Experiment> experiments = load_points(plan, overrides);
    const std::filesystem::path out = options.out.empty() ? std::filesystem::path("results") / plan.name
                                                          : std::filesystem::path(options.out);
    require_replaceable(out);

    std::vector<RunOutcome> outcomes;
    std::vector<std::optional<ConfigError>> refused(experiments.size());
    {
        Progress progress(experiments.size());
        outcomes = parallel_map(experiments.size(), options.jobs, [&](std::size_t i) {
            RunOutcome outcome = run_point(experiments[i], refused[i]);
            progress.advance();
            return outcome;
        });
    }
    // What stops every point is the sweep's own mistake, such as a trace that cannot be read.
    if (std::ranges::all_of(refused, [](const auto& r) { return r.has_value(); })) throw *refused.front();
    const bool failed = report_misses(plan, outcomes);
    write_results(out, {runs_csv(plan, outcomes),
                        manifest_json(command_line, base, {options.input.file, plan.experiment_file}),
                        resolved_yaml(plan, base)});
    fmt::print("{}\n", (out / "runs.csv").string());
    return failed ? ExitCode::kRunFailed : ExitCode::kGood;
}

}  // namespace

Action declare_sweep(CLI::App& app) {
    const auto options = std::make_shared<SweepOptions>();
    options->jobs = default_jobs();
    add_file_options(app, options->input, "Sweep (YAML)");
    app.add_option("--jobs", options->jobs,
                   "Runs at a time (default: one per core); results do not depend on it")
        ->check(CLI::Range(1, 1024));
    app.add_option("--out", options->out, "Folder of results (default: results/<name of the sweep>)")
        ->type_name("DIR")
        ->check(
            [](const std::string& folder) { return folder.empty() ? "expected a folder, got nothing" : ""; });
    return [options](std::span<const std::string> command_line) { return sweep(*options, command_line); };
}

}  // namespace kvsim
