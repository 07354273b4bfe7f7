// kvsim validate: the error of a fit on the rows of its profile, those that it never saw apart.
#include "sim/cost/validate.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/base/error.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/output_folder.hpp"
#include "sim/cli/published.hpp"
#include "sim/cli/table.hpp"
#include "sim/cli/validation_table.hpp"
#include "sim/cost/power.hpp"
#include "sim/cost/tables/fitted_operators.hpp"

namespace kvsim {
namespace {

struct ValidateOptions {
    std::string folder;
    std::string tables;  // folder of published tables; empty: the profile's own rows
    std::string rows;    // CSV file to write
    bool json = false;
};

nlohmann::ordered_json to_json(const ErrorSummary& errors) {
    return {{"rows", errors.rows}, {"median", errors.median}, {"p90", errors.p90}, {"worst", errors.worst}};
}

nlohmann::ordered_json to_json(const std::vector<ValidationRow>& rows) {
    nlohmann::ordered_json json;
    json["kernels"] = nlohmann::ordered_json::array();
    for (const ValidationRow& row : rows) {
        nlohmann::ordered_json kernel{{"kernel", row.kernel},
                                      {"layer", row.layer},
                                      {"fitted", to_json(row.fitted)},
                                      {"held_out", to_json(row.held_out)}};
        kernel["parts"] = nlohmann::ordered_json::array();
        for (const ValidationPart& part : row.parts) {
            kernel["parts"].push_back({{"rows", part.name},
                                       {"fitted", to_json(part.fitted)},
                                       {"held_out", to_json(part.held_out)}});
        }
        kernel["worst_rows"] = nlohmann::ordered_json::array();
        for (const RowError& worst : row.worst) {
            kernel["worst_rows"].push_back({{"file", worst.place.file},
                                            {"line", worst.place.line},
                                            {"held_out", worst.held_out},
                                            {"measured_us", to_us(worst.measured)},
                                            {"predicted_us", to_us(worst.predicted)},
                                            {"error", worst.error}});
        }
        json["kernels"].push_back(std::move(kernel));
    }
    return json;
}

nlohmann::ordered_json to_json(const std::vector<FamilyErrors>& families) {
    nlohmann::ordered_json json;
    json["families"] = nlohmann::ordered_json::array();
    for (const FamilyErrors& f : families) {
        json["families"].push_back({{"family", f.family},
                                    {"kernel", f.kernel},
                                    {"fitted", to_json(f.fitted)},
                                    {"held_out", to_json(f.held_out)}});
    }
    return json;
}

ExitCode validate_tables(const ValidateOptions& options) {
    const PublishedFit fit = load_published(options.folder);
    const std::vector<FamilyErrors> errors =
        validate_published(load_published_tables(options.tables), fit, load_device(fit.device));
    if (!options.rows.empty()) replace_file(options.rows, published_rows(errors));
    fmt::print("{}", options.json ? to_json(errors).dump(2) + "\n" : published_table(errors));
    return ExitCode::kGood;
}

// Long loads of products, TFLOP/s by the law of products: while the GPU is rested, and at its power limit.
std::string sustained_table(const std::string& folder) {
    const std::vector<SustainedLoad> loads = load_sustained(folder);
    const std::optional<PowerFit> power = load_power(folder);
    if (loads.empty() || !power) return "";
    const FittedOperators operators =
        load_fitted_operators(load_device(load_published(folder).device), folder);
    using enum TextTable::Align;
    TextTable table({{"products", kLeft},
                     {"tokens"},
                     {"before", kLeft},
                     {"power", kLeft},
                     {"rested TFLOP/s"},
                     {"predicted"},
                     {"error %"},
                     {"sustained"},
                     {"predicted"},
                     {"error %"}});
    for (const SustainedLoad& load : loads) {
        if (load.zeros) continue;
        double flops = 0.0, us = 0.0;
        for (const GemmWork& w : load.products) {
            flops += 2.0 * static_cast<double>(w.m) * static_cast<double>(w.n) * static_cast<double>(w.k);
            us += to_us(operators.gemm(w).time);
        }
        std::vector<std::string> cells{load.name, fmt::format("{}", load.products.front().m),
                                       load.after_memory ? "copies" : "rest",
                                       load.single() ? "fitted" : "held out"};
        const double rested = 1e-6 * flops / us;
        for (const auto& [measured, predicted] : {std::pair{load.begin_rate(), rested},
                                                  {load.sustained_rate(), rested * power->sustained_share}}) {
            for (const double rate : {measured, predicted}) cells.push_back(fmt::format("{:.0f}", rate));
            cells.push_back(fmt::format("{:+.1f}", 100.0 * (predicted / measured - 1.0)));
        }
        table.add_row(std::move(cells));
    }
    return table.str();
}

ExitCode validate(const ValidateOptions& options) {
    if (!options.rows.empty()) require_writable(options.rows, "--rows");
    if (!options.tables.empty()) return validate_tables(options);
    const std::filesystem::path folder = options.folder;
    if (std::filesystem::exists(folder / "published.yaml") && !std::filesystem::exists(folder / "fit.yaml"))
        throw_mistake({options.folder, 0, 0}, "",
                      "holds a fit to published tables (published.yaml): say with --tables where they are");
    const Profile profile = load_profile(options.folder);
    const ProfileFit fit = load_fit(options.folder);
    const std::vector<ValidationRow> rows = validate(profile, fit);
    if (!options.rows.empty()) replace_file(options.rows, validation_csv(profile, fit));
    if (options.json) {
        fmt::print("{}\n", to_json(rows).dump(2));
    } else {
        fmt::print("{}", validation_table(rows));
        if (const std::string table = sustained_table(options.folder); !table.empty())
            fmt::print("\n{}", table);
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_validate(CLI::App& app) {
    const auto options = std::make_shared<ValidateOptions>();
    app.add_option("DIR", options->folder,
                   "Profile: a folder with CSV files and fit.yaml, or with published.yaml")
        ->required();
    app.add_option("--tables", options->tables,
                   "Judge published.yaml on the published tables of this folder");
    app.add_option("--rows", options->rows, "Write measured and predicted time of every row, as CSV");
    app.add_flag("--json", options->json, "Print JSON");
    return [options](std::span<const std::string>) { return validate(*options); };
}

}  // namespace kvsim
