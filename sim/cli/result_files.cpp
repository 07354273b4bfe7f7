#include "sim/cli/result_files.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <variant>

#include "sim/base/check.hpp"
#include "sim/cli/manifest.hpp"
#include "sim/model/rank.hpp"
#include "sim/results/csv.hpp"
#include "sim/results/fields.hpp"

namespace kvsim {
namespace {

// Of one rank; null where the model has none.
nlohmann::ordered_json linear_layer(const Experiment& experiment) {
    const ModelSpec model = rank_model(experiment.model, experiment.parallelism);
    const LinearMixer* mixer = linear_mixer(model);
    if (mixer == nullptr) return {};
    const LinearShape shape = linear_shape(*mixer, experiment.linear.state);
    return {{"layers", linear_layers(model)},  {"family", name(shape.family)}, {"k_heads", shape.k_heads},
            {"v_heads", shape.v_heads},        {"k_dim", shape.k_dim},         {"v_dim", shape.v_dim},
            {"state_dtype", name(shape.state)}};
}

}  // namespace

std::string runs_csv(const Sweep& sweep, std::span<const RunOutcome> outcomes) {
    KVSIM_CHECK(outcomes.size() == sweep.points.size(), "{} outcomes of {} points", outcomes.size(),
                sweep.points.size());
    const std::vector<std::string> fields = csv_header();
    std::vector<std::string> cells = sweep.axes;
    cells.insert(cells.end(), {"status", "reason"});
    cells.insert(cells.end(), fields.begin(), fields.end());
    std::string text = csv_line(cells);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        const RunOutcome& outcome = outcomes[i];
        cells.clear();
        for (const auto& [path, value] : sweep.points[i].assignments) cells.push_back(value);
        cells.emplace_back(kRunStatusNames[static_cast<std::size_t>(outcome.status)]);
        cells.push_back(outcome.reason);
        const std::vector<std::string> values =
            outcome.result ? csv_row(*outcome.result) : std::vector<std::string>(fields.size());
        cells.insert(cells.end(), values.begin(), values.end());
        text += csv_line(cells);
    }
    return text;
}

std::string manifest_json(std::span<const std::string> command_line, const Experiment& base,
                          std::span<const Experiment> runs, std::vector<std::string> files) {
    files.push_back((std::filesystem::path(base.profile_dir) / "fit.yaml").string());
    if (const auto* trace = std::get_if<TraceWorkload>(&base.workload)) files.push_back(trace->path);
    nlohmann::ordered_json manifest = make_manifest(command_line, files);
    const nlohmann::ordered_json layer = linear_layer(runs.front());
    const bool same =
        std::ranges::all_of(runs, [&](const Experiment& run) { return linear_layer(run) == layer; });
    if (same && !layer.is_null()) manifest["linear_layer"] = layer;
    return manifest.dump(2) + '\n';
}

std::string resolved_yaml(const Sweep& sweep, const Experiment& base) {
    if (sweep.axes.empty()) return to_yaml(base);
    // The experiment's own text, indented, so that it is written in one place only.
    std::string text = fmt::format(
        "# Base experiment and axes of the sweep {}; the last axis varies fastest.\nexperiment:\n",
        sweep.name);
    std::string line;
    for (const char c : to_yaml(base)) {
        line += c;
        if (c != '\n') continue;
        text += "  " + line;
        line.clear();
    }
    YAML::Emitter axes;
    axes << YAML::BeginMap << YAML::Key << "axes" << YAML::Value << YAML::BeginSeq;
    for (std::size_t a = 0; a < sweep.axes.size(); ++a) {
        std::vector<std::string> values;  // distinct, in the order of the file
        for (const SweepPoint& point : sweep.points) {
            const std::string& value = point.assignments[a].second;
            if (std::ranges::find(values, value) == values.end()) values.push_back(value);
        }
        axes << YAML::Flow << YAML::BeginMap << YAML::Key << "key" << YAML::Value << sweep.axes[a]
             << YAML::Key << "values" << YAML::Value << values << YAML::EndMap;
    }
    axes << YAML::EndSeq << YAML::EndMap;
    return text + axes.c_str() + '\n';
}

}  // namespace kvsim
