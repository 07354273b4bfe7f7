// How requests are served: `scheduler` of an engine file; `speculation`, `replicas`, `router`, `slo`,
// `warmup`, `service` of an experiment.
#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <vector>

#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"
#include "sim/policies/speculation.hpp"

namespace kvsim {

namespace {

constexpr RealRange kShare{.min = 0.0, .max = 1.0};
constexpr std::array<std::string_view, 2> kServiceKindNames{"constant", "exponential"};

template <std::size_t N, class Enum>
std::string word(const std::array<std::string_view, N>& names, Enum value) {
    return std::string(names[static_cast<std::size_t>(value)]);
}

template <class Value>
void pair(YAML::Emitter& out, const char* key, const Value& value) {
    out << YAML::Key << key << YAML::Value << value;
}

// [[smallest batch, k], ...], batches ascending from 1.
std::vector<std::pair<std::int64_t, int>> read_draft_table(const YamlCursor& list) {
    std::vector<std::pair<std::int64_t, int>> table;
    for (const YamlCursor& row : list.items(1)) {
        const std::vector<YamlCursor> cells = row.items(2);
        if (cells.size() != 2) {
            row.mistake("expected a pair [smallest batch, drafts]");
            continue;
        }
        const std::int64_t batch = cells[0].integer({1, 1 << 20}, 1);
        const int drafts = cells[1].small_integer({0, kMostDrafts});
        if (table.empty() && batch != 1)
            cells[0].mistake(fmt::format("expected a table from batch 1 on, got {}", batch));
        if (!table.empty() && batch <= table.back().first) {
            cells[0].mistake(
                fmt::format("expected batches that ascend, got {} after {}", batch, table.back().first));
        }
        table.emplace_back(batch, drafts);
    }
    return table;
}

AcceptanceSpec read_acceptance(const YamlCursor& map) {
    AcceptanceSpec acceptance;
    const YamlCursor rate = map.find("rate");
    const YamlCursor rates = map.find("rates");
    if (!map.is_map()) return acceptance;
    if (rate.present() + rates.present() != 1) map.mistake("expected exactly one of rate, rates");
    if (rate.present()) acceptance.rates.push_back(rate.real(kShare));
    if (rates.present()) {
        for (const YamlCursor& item : rates.items(1)) acceptance.rates.push_back(item.real(kShare));
    }
    if (const YamlCursor half = map.find("half_context"); half.present())
        acceptance.half_context = half.real(kPositiveReal, 1.0);
    return acceptance;
}

SpeculationSpec read_speculation(const YamlCursor& map) {
    SpeculationSpec spec;
    if (!map.present()) return spec;
    std::vector<std::string_view> names;
    for (const SpeculationPolicyEntry& entry : speculation_policies()) names.push_back(entry.name);
    const YamlCursor policy = map.at("policy");
    const std::optional<std::size_t> index = policy.choice_index(names);
    if (!index) {
        map.ignore_rest();
        return spec;
    }
    spec.policy = names[*index];
    const bool none = spec.policy == "none";
    const bool table = spec.policy == "table";
    // A policy set by `--set` takes the place of the whole choice that a file made.
    const auto refuse = [&](const char* key) {
        const YamlCursor value = map.find(key);
        const bool replaced = policy.place().line == 0 && value.place().line != 0;
        if (value.present() && !replaced)
            value.mistake(fmt::format("the policy `{}` has no use for this key", spec.policy));
    };
    if (table) spec.table = read_draft_table(map.at("table"));
    if (!table) refuse("table");
    // None at all is a point of an axis of `static`; a policy that chooses needs a choice.
    const int fewest = spec.policy == "static" ? 0 : 1;
    if (!none && !table) spec.drafts = map.at("drafts").small_integer({fewest, kMostDrafts}, 1);
    if (none || table) refuse("drafts");
    if (!none) spec.acceptance = read_acceptance(map.at("acceptance"));
    if (none) refuse("acceptance");
    return spec;
}

SloSpec read_slo(const YamlCursor& map) {
    SloSpec slo;
    const auto bound = [&](const char* key, std::optional<Time>& time) {
        if (const YamlCursor value = map.find(key); value.present()) time = value.time();
    };
    bound("ttft", slo.ttft);
    bound("tpot", slo.tpot);
    bound("e2e", slo.e2e);
    if (map.is_map() && !slo.ttft && !slo.tpot && !slo.e2e)
        map.mistake("expected at least one of ttft, tpot, e2e");
    return slo;
}

ServiceSpec read_service(const YamlCursor& map) {
    ServiceSpec service;
    service.kind = map.at("kind").choice<ServiceSpec::Kind>(kServiceKindNames);
    service.mean = map.at("mean").time(Sign::kPositive, Time(1));
    return service;
}

void write_speculation(YAML::Emitter& out, const SpeculationSpec& spec) {
    out << YAML::Flow << YAML::BeginMap;
    pair(out, "policy", spec.policy);
    if (spec.policy != "none") {
        if (spec.table.empty()) {
            pair(out, "drafts", spec.drafts);
        } else {
            out << YAML::Key << "table" << YAML::Value << YAML::BeginSeq;
            for (const auto& [batch, drafts] : spec.table)
                out << YAML::BeginSeq << batch << drafts << YAML::EndSeq;
            out << YAML::EndSeq;
        }
        out << YAML::Key << "acceptance" << YAML::Value << YAML::BeginMap << YAML::Key << "rates"
            << YAML::Value << YAML::BeginSeq;
        for (const double rate : spec.acceptance.rates) out << shortest(rate);
        out << YAML::EndSeq;
        if (spec.acceptance.half_context) pair(out, "half_context", shortest(*spec.acceptance.half_context));
        out << YAML::EndMap;
    }
    out << YAML::EndMap;
}

}  // namespace

SchedulerSpec read_scheduler(const YamlCursor& map) {
    SchedulerSpec s;
    if (!map.present()) return s;
    s.steps = map.at("steps").choice<StepRule>(kStepRuleNames);
    s.order = map.find("order").choice<QueueOrder>(kQueueOrderNames);
    s.victim = map.find("victim").choice<VictimRule>(kVictimRuleNames, s.victim);
    const YamlCursor admission = map.at("admission");
    s.admission = admission.choice<AdmissionRule>(kAdmissionRuleNames);
    s.watermark = map.find("watermark").real({.min = 0.0, .max = 0.99}, s.watermark);
    const YamlCursor first = map.find("new_token_ratio");
    const YamlCursor least = map.find("least_token_ratio");
    const YamlCursor steps = map.find("ratio_steps");
    s.new_token_ratio = first.real(kShare, s.new_token_ratio);
    s.least_token_ratio = least.real(kShare, std::min(s.least_token_ratio, s.new_token_ratio));
    s.ratio_steps = steps.small_integer({1, 1'000'000}, s.ratio_steps);
    if (least.present() && s.least_token_ratio > s.new_token_ratio) {
        least.mistake(fmt::format("expected at most new_token_ratio ({}), got {}", s.new_token_ratio,
                                  s.least_token_ratio));
    }
    if (s.admission == AdmissionRule::kEstimated) return s;
    // `--set` of another admission takes the place of the ratio that the engine's own has.
    for (const YamlCursor& ratio : {first, least, steps}) {
        const bool replaced = admission.place().line == 0 && ratio.place().line != 0;
        if (ratio.present() && !replaced) ratio.mistake("the admission `estimated` alone has a ratio");
    }
    return s;
}

void write_scheduler(YAML::Emitter& out, const SchedulerSpec& s) {
    out << YAML::BeginMap;
    pair(out, "steps", word(kStepRuleNames, s.steps));
    pair(out, "order", word(kQueueOrderNames, s.order));
    pair(out, "victim", word(kVictimRuleNames, s.victim));
    pair(out, "admission", word(kAdmissionRuleNames, s.admission));
    if (s.admission == AdmissionRule::kEstimated) {
        pair(out, "new_token_ratio", shortest(s.new_token_ratio));
        pair(out, "least_token_ratio", shortest(s.least_token_ratio));
        pair(out, "ratio_steps", s.ratio_steps);
    }
    pair(out, "watermark", shortest(s.watermark));
    out << YAML::EndMap;
}

ServingSpec read_serving(const YamlCursor& experiment, bool arrivals) {
    ServingSpec serving;
    serving.speculation = read_speculation(experiment.find("speculation"));
    const YamlCursor replicas = experiment.find("replicas");
    const YamlCursor router = experiment.find("router");
    const YamlCursor slo = experiment.find("slo");
    const YamlCursor warmup = experiment.find("warmup");
    const YamlCursor service = experiment.find("service");
    serving.replicas = replicas.small_integer({1, 1 << 16}, 1);
    serving.router = router.choice<RouterRule>(kRouterRuleNames);
    if (slo.present()) serving.slo = read_slo(slo);
    serving.warmup = warmup.time(Sign::kNonNegative);
    if (service.present()) serving.service = read_service(service);
    if (arrivals) return serving;
    for (const YamlCursor& key : {replicas, router, slo, warmup, service}) {
        if (key.present()) key.mistake("nothing arrives in a steady workload, which has no use for this key");
    }
    return serving;
}

void write_serving(YAML::Emitter& out, const ServingSpec& serving, bool arrivals) {
    write_speculation(out << YAML::Key << "speculation" << YAML::Value, serving.speculation);
    if (!arrivals) return;
    pair(out, "replicas", serving.replicas);
    pair(out, "router", word(kRouterRuleNames, serving.router));
    if (const SloSpec& slo = serving.slo; slo != SloSpec{}) {
        out << YAML::Key << "slo" << YAML::Value << YAML::Flow << YAML::BeginMap;
        if (slo.ttft) pair(out, "ttft", to_text(*slo.ttft));
        if (slo.tpot) pair(out, "tpot", to_text(*slo.tpot));
        if (slo.e2e) pair(out, "e2e", to_text(*slo.e2e));
        out << YAML::EndMap;
    }
    pair(out, "warmup", to_text(serving.warmup));
    if (serving.service) {
        out << YAML::Key << "service" << YAML::Value << YAML::Flow << YAML::BeginMap;
        pair(out, "kind", word(kServiceKindNames, serving.service->kind));
        pair(out, "mean", to_text(serving.service->mean));
        out << YAML::EndMap;
    }
}

}  // namespace kvsim
