// kvsim fit: from measured rows to fit.yaml.
#include "sim/cost/fit.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/output_folder.hpp"
#include "sim/cli/validation_table.hpp"
#include "sim/cost/power.hpp"
#include "sim/cost/profile.hpp"
#include "sim/cost/tables/public_kernels.hpp"

namespace kvsim {
namespace {

struct FitOptions {
    std::string folder;
    std::string kernels;  // table of published kernels; empty: the profile's own
    std::string out;      // empty: beside the profile
};

// The fit that is about to be replaced; empty where there is none, or none that can be read any more.
std::vector<LinearFit> old_kernels(const std::filesystem::path& file) {
    if (!std::filesystem::exists(file)) return {};
    try {
        return load_fit(file.string()).linear;
    } catch (const ConfigError&) {
        fmt::print(stderr, "{}: the fit that was there cannot be read, and is replaced\n", file.string());
        return {};
    }
}

// Says which kernels the file had and the new fit has not: their rows are gone.
void tell_what_is_lost(const std::filesystem::path& file, const ProfileFit& now) {
    for (const LinearFit& old : old_kernels(file)) {
        const bool kept = std::ranges::any_of(now.linear, [&](const LinearFit& k) {
            return k.kernel == old.kernel && k.state == old.state && k.records == old.records &&
                   k.k_dim == old.k_dim && k.v_dim == old.v_dim;
        });
        if (!kept)
            fmt::print(stderr,
                       "{}: {} with a state in {} is no longer fitted: the profile has no rows of it\n",
                       file.string(), old.kernel, name(old.state));
    }
}

ExitCode fit(const FitOptions& options) {
    const std::filesystem::path folder = options.folder;
    const bool own = options.kernels.empty();
    const std::filesystem::path file = options.out.empty()
                                           ? folder / (own ? "fit.yaml" : "public_kernels.yaml")
                                           : std::filesystem::path(options.out);
    require_writable(file, "--out");
    Profile profile = load_profile(options.folder);
    if (!own) profile = load_public_kernels(options.kernels, profile);
    const std::vector<SustainedLoad> loads =
        own ? load_sustained(options.folder) : std::vector<SustainedLoad>{};
    const ProfileFit result = fit_profile(profile);
    const std::string power = loads.empty() ? "" : to_yaml(fit_power(loads, options.folder));
    const std::string table = validation_table(validate(profile, result));
    tell_what_is_lost(file, result);
    const std::string source =
        own ? ""
            : fmt::format("# Kernels of others: {}; memory rates of {}.\n",
                          std::filesystem::path(options.kernels).filename().string(), options.folder);
    replace_file(file, source + to_yaml(result));
    if (!power.empty()) replace_file(file.parent_path() / "power.yaml", power);
    fmt::print("{}\n{}", file.string(), table);
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
