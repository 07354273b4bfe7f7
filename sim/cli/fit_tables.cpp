// kvsim fit-tables: from published tables to published.yaml.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "sim/cli/command.hpp"
#include "sim/cli/output_folder.hpp"
#include "sim/cli/published.hpp"

namespace kvsim {
namespace {

struct FitTablesOptions {
    std::string folder, device, out;
    TableSource source;
};

ExitCode fit_tables(const FitTablesOptions& options) {
    require_writable(options.out, "--out");
    const DeviceSpec device = load_device(options.device);
    const PublishedTables tables = load_published_tables(options.folder);
    const PublishedFit fit = fit_published(tables, device, options.source);
    replace_file(options.out, to_yaml(fit));
    fmt::print("{}\n{}", options.out, published_table(validate_published(tables, fit, device)));
    return ExitCode::kGood;
}

}  // namespace

Action declare_fit_tables(CLI::App& app) {
    const auto options = std::make_shared<FitTablesOptions>();
    app.add_option("DIR", options->folder, "Folder with the tables: gemm.csv, moe.csv, ...")->required();
    app.add_option("--device", options->device, "Device that they were measured on, of configs/devices")
        ->required();
    const auto said = [](const std::string& text) {
        return text.empty() ? "expected a name, got nothing" : "";
    };
    app.add_option("--out", options->out, "File to write: profiles/<gpu>/published.yaml")
        ->required()
        ->check(said);
    app.add_option("--source", options->source.name, "Who published them")->required()->check(said);
    app.add_option("--commit", options->source.commit, "Revision of the source")->required()->check(said);
    app.add_option("--licence", options->source.licence, "Licence of the source")->required()->check(said);
    return [options](std::span<const std::string>) { return fit_tables(*options); };
}

}  // namespace kvsim
