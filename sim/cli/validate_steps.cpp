// kvsim validate-steps: whole steps that others measured against their prices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "sim/cli/command.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/output_folder.hpp"
#include "sim/cli/step_points.hpp"
#include "sim/cli/table.hpp"
#include "sim/cost/fit.hpp"

namespace kvsim {
namespace {

struct ValidateStepsOptions {
    FileOptions input;
    std::string table;
    std::string rows;  // CSV file to write
    bool own = false;
};

// Steps that ran at the power limit: prices assume the full clock for all but long matrix products.
constexpr std::int64_t kFullClockMhz = 1980;  // of the H200
bool slowed(const StepPoint& point) {
    return point.sm_mhz > 0 && point.sm_mhz < kFullClockMhz;
}
std::string clock_note(const StepPoint& point) {
    return slowed(point) ? fmt::format("{} MHz, power limit", point.sm_mhz) : "";
}

std::string points_table(const std::vector<StepPrediction>& predictions) {
    using enum TextTable::Align;
    TextTable table({{"device", kLeft},
                     {"model", kLeft},
                     {"metric", kLeft},
                     {"variant", kLeft},
                     {"batch"},
                     {"context"},
                     {"measured"},
                     {"predicted"},
                     {"+-"},
                     {"error %"},
                     {"largest uncertainty", kLeft},
                     {"clock", kLeft}});
    for (const StepPrediction& p : predictions) {
        table.add_row({p.point.device, p.point.model, p.point.metric, p.point.variant,
                       fmt::format("{}", p.point.batch), fmt::format("{}", p.point.context),
                       fmt::format("{:.2f}", p.point.measured), fmt::format("{:.2f}", p.predicted),
                       fmt::format("{:.2f}", p.uncertainty), fmt::format("{:+.1f}", 100.0 * p.error()),
                       p.largest, clock_note(p.point)});
    }
    return table.str();
}

std::string error_line(const std::vector<StepPrediction>& predictions) {
    std::vector<double> errors;
    for (const StepPrediction& p : predictions) errors.push_back(std::abs(p.error()));
    const ErrorSummary s = summarise_errors(errors);
    return fmt::format("{} points: median error {:.1f} %, p90 {:.1f} %, worst {:.1f} %\n", s.rows,
                       100.0 * s.median, 100.0 * s.p90, 100.0 * s.worst);
}

// Recurrent over buffered in mixed phases (before batch 32, where these are not measured, at half fill).
std::string gains_table(const std::vector<StepPrediction>& predictions) {
    std::map<std::tuple<std::string, std::int64_t, std::int64_t>,
             std::map<std::string, const StepPrediction*>>
        steps;
    for (const StepPrediction& p : predictions) {
        if (p.point.metric == "decode_us")
            steps[{p.point.model, p.point.context, p.point.batch}][p.point.variant] = &p;
    }
    if (steps.empty()) return "";
    using enum TextTable::Align;
    TextTable table({{"model", kLeft},
                     {"context"},
                     {"batch"},
                     {"buffered", kLeft},
                     {"gain measured"},
                     {"predicted"},
                     {"difference"},
                     {"clock", kLeft}});
    for (const auto& [key, variants] : steps) {
        const auto packed = variants.find("packed");
        auto buffered = variants.find("mixed");
        if (buffered == variants.end()) buffered = variants.find("mid");
        if (packed == variants.end() || buffered == variants.end()) continue;
        const double measured = packed->second->point.measured / buffered->second->point.measured;
        const double predicted = packed->second->predicted / buffered->second->predicted;
        table.add_row({std::get<0>(key), fmt::format("{}", std::get<1>(key)),
                       fmt::format("{}", std::get<2>(key)), buffered->first, fmt::format("{:.3f}", measured),
                       fmt::format("{:.3f}", predicted), fmt::format("{:+.3f}", predicted - measured),
                       clock_note(buffered->second->point)});
    }
    return "\n" + table.str();
}

// The rows of the table say what was run, so an assignment of it would be ignored.
void refuse_what_rows_say(const std::vector<Override>& overrides) {
    std::vector<Mistake> mistakes;
    for (const auto& [path, value] : overrides) {
        const std::string part = path.substr(0, path.find('.'));
        if (path != "model" && path != "device" && part != "linear" && part != "workload") continue;
        Mistake& mistake = mistakes.emplace_back();
        mistake.place.file = fmt::format("--set {}={}", path, value);
        mistake.message = "the rows of the table say which model, device, form, batch and context";
    }
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
}

ExitCode validate_steps(const ValidateStepsOptions& options) {
    const std::vector<Override> overrides = parse_assignments(options.input.assignments);
    refuse_what_rows_say(overrides);
    if (!options.rows.empty()) require_writable(options.rows, "--rows");
    std::vector<StepPrediction> predictions;
    std::string csv =
        "device,model,metric,variant,batch,context,measured,predicted,uncertainty,power_limited\n";
    for (const StepPoint& point : load_step_points(options.table)) {
        const StepPrediction p = predict(point, options.input.file, overrides,
                                         options.own ? LinearKernels::kOwn : LinearKernels::kPublished);
        csv += fmt::format("{},{},{},{},{},{},{},{:.6g},{:.3g},{}\n", point.device, point.model, point.metric,
                           point.variant, point.batch, point.context, point.measured, p.predicted,
                           p.uncertainty, slowed(point));
        predictions.push_back(p);
    }
    if (!options.rows.empty()) replace_file(options.rows, csv);
    fmt::print("{}\n{}{}", points_table(predictions), error_line(predictions), gains_table(predictions));
    return ExitCode::kGood;
}

}  // namespace

Action declare_validate_steps(CLI::App& app) {
    const auto options = std::make_shared<ValidateStepsOptions>();
    add_file_options(app, options->input, "Experiment (YAML) that lends the engine");
    app.add_option("--table", options->table,
                   "Measured steps: profiles/published_steps.csv, or whole decode steps")
        ->required();
    app.add_option("--rows", options->rows, "CSV file to write, a row per point");
    app.add_flag("--own-kernels", options->own,
                 "Price linear attention with our kernels, not the measured steps' own");
    return [options](std::span<const std::string>) { return validate_steps(*options); };
}

}  // namespace kvsim
