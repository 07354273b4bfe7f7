// kvsim fit: from measured rows to fit.yaml.
#include "sim/cost/fit.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "sim/cli/command.hpp"
#include "sim/cli/output_folder.hpp"
#include "sim/cli/validation_table.hpp"
#include "sim/cost/profile.hpp"
#include "sim/cost/tables/public_kernels.hpp"

namespace kvsim {
namespace {

struct FitOptions {
    std::string folder;
    std::string kernels;  // table of published kernels; empty: the profile's own
    std::string out;      // empty: beside the profile
};

ExitCode fit(const FitOptions& options) {
    Profile profile = load_profile(options.folder);
    const bool own = options.kernels.empty();
    if (!own) profile = load_public_kernels(options.kernels, profile);
    const ProfileFit result = fit_profile(profile);
    const std::filesystem::path folder = options.folder;
    const std::filesystem::path file = options.out.empty()
                                           ? folder / (own ? "fit.yaml" : "public_kernels.yaml")
                                           : std::filesystem::path(options.out);
    const std::string source =
        own ? ""
            : fmt::format("# Kernels of others: {}; memory rates of {}.\n",
                          std::filesystem::path(options.kernels).filename().string(), options.folder);
    replace_file(file, source + to_yaml(result));
    fmt::print("{}\n{}", file.string(), validation_table(validate(profile, result)));
    return ExitCode::kGood;
}

}  // namespace

Action declare_fit(CLI::App& app) {
    const auto options = std::make_shared<FitOptions>();
    app.add_option("DIR", options->folder, "Profile: a folder with the CSV files of kvcalib")->required();
    app.add_option("--kernels", options->kernels,
                   "Fit the published kernels of this table instead, with the memory rates of the profile");
    app.add_option("--out", options->out, "File to write (default: DIR/fit.yaml, DIR/public_kernels.yaml)");
    return [options](std::span<const std::string>) { return fit(*options); };
}

}  // namespace kvsim
