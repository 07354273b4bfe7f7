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

namespace kvsim {
namespace {

ExitCode fit(const std::string& folder) {
    const Profile profile = load_profile(folder);
    const ProfileFit result = fit_profile(profile);
    const std::filesystem::path file = std::filesystem::path(folder) / "fit.yaml";
    replace_file(file, to_yaml(result));
    fmt::print("{}\n{}", file.string(), validation_table(validate(profile, result)));
    return ExitCode::kGood;
}

}  // namespace

Action declare_fit(CLI::App& app) {
    const auto folder = std::make_shared<std::string>();
    app.add_option("DIR", *folder, "Profile: a folder with the CSV files of kvcalib")->required();
    return [folder](std::span<const std::string>) { return fit(*folder); };
}

}  // namespace kvsim
