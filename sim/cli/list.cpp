// kvsim list: the names that a configuration may use, and the columns of the files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/profile_columns.hpp"
#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/cli/command.hpp"
#include "sim/config/locate.hpp"
#include "sim/config/supported.hpp"
#include "sim/cost/step_cost.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/memory/serving_spec.hpp"
#include "sim/policies/flush.hpp"
#include "sim/policies/form.hpp"
#include "sim/policies/speculation.hpp"
#include "sim/results/fields.hpp"

namespace kvsim {
namespace {

struct Item {
    std::string name;
    std::string help;
};
using Items = std::vector<Item>;

Items files(FileKind kind) {
    Items items;
    for (const std::string& name :
         ConfigFolders(std::filesystem::current_path() / "configs/experiments/-").names(kind)) {
        items.push_back({name, ""});
    }
    return items;
}

// Tables whose entries have a name and perhaps a help text.
template <class Table>
Items entries(const Table& table) {
    Items items;
    for (const auto& entry : table) {
        if constexpr (requires { entry.help; }) {
            items.push_back({std::string(entry.name), std::string(entry.help)});
        } else {
            items.push_back({std::string(entry), ""});
        }
    }
    return items;
}

// The dimension of system behaviour that a kind of policy works on: execution and scheduling, placement and
// migration, or representation and retention. Jiang et al., Towards Efficient Large Language Model Serving: A
// Survey on System-Aware KV Cache Optimization, Findings of ACL 2026.
enum class Axis : std::uint8_t { kNone, kTemporal, kSpatial, kStructural };
constexpr std::array<std::string_view, 4> kAxisNames{"", "temporal", "spatial", "structural"};

struct Kind {
    std::string_view name;
    std::string_view help;
    Items (*items)();
    Axis axis = Axis::kNone;  // of a policy
};

constexpr std::array<Kind, 21> kKinds{{
    {"models", "files of configs/models: `model` of an experiment", [] { return files(FileKind::kModel); }},
    {"devices", "files of configs/devices: `device`", [] { return files(FileKind::kDevice); }},
    {"engines", "files of configs/engines: `engine`", [] { return files(FileKind::kEngine); }},
    {"workloads", "files of workloads: `workload`", [] { return files(FileKind::kWorkload); }},
    {"experiments", "files of configs/experiments: `experiment` of a sweep",
     [] { return files(FileKind::kExperiment); }},
    {"parts", "what layers are made of: `type` of a part of a model", [] { return entries(kPartTypeNames); }},
    {"forms", "ways to serve the linear layers: `linear.form`", [] { return entries(form_policies()); },
     Axis::kStructural},
    {"flush", "when a buffer is folded into its state: `linear.flush.policy`",
     [] { return entries(flush_policies()); }, Axis::kTemporal},
    {"snapshots", "when a row flushes for a copy of its state: keys of `engine.prefix_cache`",
     [] { return entries(kSnapshotRules); }, Axis::kTemporal},
    {"speculation", "how many drafts are verified: `speculation.policy`",
     [] { return entries(speculation_policies()); }, Axis::kTemporal},
    {"steps", "how an engine mixes prefill and decode: `scheduler.steps`",
     [] { return entries(kStepRuleNames); }, Axis::kTemporal},
    {"orders", "who is admitted first: `scheduler.order`", [] { return entries(kQueueOrderNames); },
     Axis::kTemporal},
    {"admission", "what is set aside for a request: `scheduler.admission`",
     [] { return entries(kAdmissionRuleNames); }, Axis::kSpatial},
    {"victims", "who gives way when memory runs out: `scheduler.victim`",
     [] { return entries(kVictimRuleNames); }, Axis::kStructural},
    {"routers", "which replica takes a request: `router`", [] { return entries(kRouterRuleNames); },
     Axis::kSpatial},
    {"state_formats", "`linear.state_dtype`; on the roofline where no kernel was measured",
     [] { return entries(kSupportedStateFormats); }},
    {"limits", "what may bind the number of requests", [] { return entries(kLimitNames); }},
    {"owners", "whose bytes they are", [] { return entries(kOwnerNames); }},
    {"sources", "where a time comes from, best first", [] { return entries(kSourceNames); }},
    {"fields", "of a result: keys of run --json, columns of runs.csv with _ for .",
     [] { return entries(result_fields()); }},
    {"profile", "columns of profiles/<gpu>/*.csv", [] { return entries(profile_columns()); }},
}};

void print_kind(const Kind& kind) {
    fmt::print("{}: {}\n", kind.name, kind.help);
    const Items items = kind.items();
    const std::string_view axis = kAxisNames[static_cast<std::size_t>(kind.axis)];
    std::size_t width = 0;
    for (const Item& item : items) width = std::max(width, item.name.size());
    for (const Item& item : items) {
        std::string line = fmt::format("  {:<{}}", item.name, width);
        for (const std::string_view column : {axis, std::string_view(item.help)}) {
            if (!column.empty()) line += fmt::format("  {}", column);
        }
        fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
    }
}

ExitCode list(const std::string& wanted) {
    std::vector<std::string_view> names;
    for (const Kind& kind : kKinds) names.push_back(kind.name);
    if (!wanted.empty() && std::ranges::find(names, wanted) == names.end()) {
        throw_mistake(
            {"kvsim list"}, "",
            fmt::format("expected one of {}, got `{}`{}", join(names), wanted, suggestion(wanted, names)));
    }
    for (const Kind& kind : kKinds) {
        if (wanted.empty() || wanted == kind.name) print_kind(kind);
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_list(CLI::App& app) {
    const auto kind = std::make_shared<std::string>();
    app.add_option("KIND", *kind, "Only this kind: models, devices, forms, fields, ...");
    return [kind](std::span<const std::string>) { return list(*kind); };
}

}  // namespace kvsim
