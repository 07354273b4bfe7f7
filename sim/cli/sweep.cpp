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
#include "sim/base/text.hpp"
#include "sim/base/thread_pool.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/result_files.hpp"
#include "sim/cli/table.hpp"
#include "sim/results/fields.hpp"

namespace kvsim {
namespace {

struct SweepOptions {
    FileOptions input;
    std::string out;
    std::vector<std::string> show;  // fields
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

std::vector<const ResultField*> find_fields(const std::vector<std::string>& names) {
    std::vector<std::string_view> known;
    for (const ResultField& field : result_fields()) known.push_back(field.name);
    std::vector<const ResultField*> fields;
    for (const std::string& name : names) {
        const auto place = std::ranges::find(known, name);
        if (place == known.end()) {
            throw_mistake({"--show"}, "",
                          fmt::format("unknown field `{}`{}; `kvsim list fields` has all", name,
                                      suggestion(name, known)));
        }
        fields.push_back(&result_fields()[static_cast<std::size_t>(place - known.begin())]);
    }
    return fields;
}

std::string cell(const FieldValue& value) {
    if (const auto* number = std::get_if<double>(&value))
        return *number < 1e5 ? fmt::format("{:.5g}", *number) : fmt::format("{:.0f}", *number);
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *whole);
    if (const auto* text = std::get_if<std::string_view>(&value)) return std::string(*text);
    return "-";
}

// A row per point: the axes that have more than one value, then the fields; of a point that did not run, its
// status.
std::string fields_table(const Sweep& sweep, const std::vector<RunOutcome>& outcomes,
                         const std::vector<const ResultField*>& fields) {
    std::vector<std::size_t> axes;
    std::vector<TextTable::Column> columns;
    for (std::size_t a = 0; a < sweep.axes.size(); ++a) {
        const auto same = [&](const SweepPoint& point) {
            return point.assignments[a].second == sweep.points.front().assignments[a].second;
        };
        if (std::ranges::all_of(sweep.points, same)) continue;
        axes.push_back(a);
        columns.push_back({sweep.axes[a]});
    }
    for (const ResultField* field : fields) columns.push_back({field->name});
    TextTable table(std::move(columns));
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        std::vector<std::string> row;
        for (const std::size_t a : axes) row.push_back(sweep.points[i].assignments[a].second);
        const std::string status(kRunStatusNames[static_cast<std::size_t>(outcomes[i].status)]);
        for (const ResultField* field : fields)
            row.push_back(outcomes[i].result ? cell(field->get(*outcomes[i].result)) : status);
        table.add_row(std::move(row));
    }
    return table.str();
}

ExitCode sweep(const SweepOptions& options, std::span<const std::string> command_line) {
    const Sweep plan = load_sweep(options.input.file);
    const std::vector<Override> overrides = parse_assignments(options.input.assignments);
    require_not_swept(overrides, plan);
    const std::vector<const ResultField*> fields = find_fields(options.show);
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
    write_results(out,
                  {runs_csv(plan, outcomes),
                   manifest_json(command_line, base, experiments, {options.input.file, plan.experiment_file}),
                   resolved_yaml(plan, base)});
    if (!fields.empty()) fmt::print("{}\n", fields_table(plan, outcomes, fields));
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
    app.add_option("--show", options->show, "Print a table of these fields: ttft_ms.p99,tpot_ms.p99")
        ->type_name("FIELD,...")
        ->delimiter(',');
    return [options](std::span<const std::string> command_line) { return sweep(*options, command_line); };
}

}  // namespace kvsim
