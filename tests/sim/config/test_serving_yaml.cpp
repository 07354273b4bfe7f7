// Schedulers of engines; speculation, replicas, objectives, warm-up and service of experiments.
#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

std::string error_of(const std::vector<Override>& overrides, const std::string& file = kAzure) {
    return config_error([&] { load_experiment(file, overrides); });
}

Experiment read_back(const Experiment& e) {
    const TemporaryFolder folder;
    return load_experiment(folder.write("resolved.yaml", to_yaml(e)));
}

TEST_CASE("engines schedule by their published defaults") {
    const SchedulerSpec sglang = load_experiment(kAzure, {{"engine", "sglang"}}).engine.scheduler;
    CHECK(sglang.steps == StepRule::kPrefillFirst);
    CHECK(sglang.victim == VictimRule::kFewestOutput);
    CHECK(sglang.admission == AdmissionRule::kEstimated);
    CHECK(sglang.new_token_ratio == 0.7);
    CHECK(sglang.least_token_ratio == Approx(0.7 * 0.14));
    CHECK(sglang.ratio_steps == 600);
    const SchedulerSpec vllm = load_experiment(kAzure, {{"engine", "vllm"}}).engine.scheduler;
    CHECK(vllm.steps == StepRule::kMixed);
    CHECK(vllm.order == QueueOrder::kFirstCome);
    CHECK(vllm.victim == VictimRule::kLastAdmitted);
    CHECK(vllm.admission == AdmissionRule::kPrompt);
    CHECK(vllm.watermark == 0.0);
    CHECK(load_experiment(kAzure, {{"engine", "ideal"}}).engine.scheduler.admission ==
          AdmissionRule::kDeclared);
}

TEST_CASE("mistakes of a scheduler are named") {
    CHECK_THAT(error_of({{"engine.scheduler.steps", "mixd"}}), ContainsSubstring("(did you mean `mixed`?)"));
    CHECK_THAT(error_of({{"engine.scheduler.watermrk", "0"}}),
               ContainsSubstring("unknown key `watermrk` (did you mean `watermark`?)"));
    CHECK_THAT(error_of({{"engine.scheduler.new_token_ratio", "1.5"}}),
               ContainsSubstring("of at most 1, got `1.5`"));
    CHECK_THAT(error_of({{"engine.scheduler.least_token_ratio", "0.8"}}),
               ContainsSubstring("expected at most new_token_ratio (0.7), got 0.8"));
    CHECK_THAT(error_of({{"engine.scheduler", "{steps: mixed}"}}),
               ContainsSubstring("engine.scheduler.admission: missing required key"));
    CHECK_THAT(error_of({{"engine", "vllm"},
                         {"engine.scheduler", "{steps: mixed, admission: prompt, ratio_steps: 9}"}}),
               ContainsSubstring("engine.scheduler.ratio_steps"));
    // Another admission takes the place of the engine's, and of its ratio.
    const Experiment declared = load_experiment(kAzure, {{"engine.scheduler.admission", "declared"}});
    CHECK(declared.engine.scheduler.admission == AdmissionRule::kDeclared);
}

TEST_CASE("speculation by every policy") {
    const auto spec_of = [](const std::string& text) {
        const Experiment e = load_experiment(kAzure, {{"speculation", text}});
        CHECK(e.linear.drafts == e.serving.speculation.most_drafts());
        CHECK(read_back(e).serving == e.serving);
        return e.serving.speculation;
    };
    CHECK(spec_of("{policy: none}") == SpeculationSpec{});
    CHECK(load_experiment(kAzure).serving.speculation == SpeculationSpec{});
    const SpeculationSpec fixed = spec_of("{policy: static, drafts: 3, acceptance: {rate: 0.8}}");
    CHECK(fixed.drafts == 3);
    CHECK(fixed.acceptance.rates == std::vector<double>{0.8});
    CHECK(fixed.most_drafts() == 3);
    const SpeculationSpec table = spec_of(
        "{policy: table, table: [[1, 7], [16, 3], [128, 0]], acceptance: {rates: [0.9, 0.7], half_context: "
        "8192}}");
    CHECK(table.table == std::vector<std::pair<std::int64_t, int>>{{1, 7}, {16, 3}, {128, 0}});
    CHECK(table.acceptance.rates == std::vector<double>{0.9, 0.7});
    CHECK(table.acceptance.half_context == 8192.0);
    CHECK(table.most_drafts() == 7);
    CHECK(spec_of("{policy: goodput, drafts: 5, acceptance: {rate: 1}}").policy == "goodput");
}

TEST_CASE("mistakes of speculation are named") {
    const auto error = [](const std::string& text) { return error_of({{"speculation", text}}); };
    CHECK_THAT(error("{policy: statik}"), ContainsSubstring("(did you mean `static`?)"));
    CHECK_THAT(error("{drafts: 3}"), ContainsSubstring("speculation.policy: missing required key"));
    CHECK_THAT(error("{policy: static, acceptance: {rate: 1}}"),
               ContainsSubstring("speculation.drafts: missing required key"));
    CHECK_THAT(error("{policy: static, drafts: 3}"),
               ContainsSubstring("speculation.acceptance: missing required key"));
    CHECK_THAT(error("{policy: none, drafts: 3}"),
               ContainsSubstring("speculation.drafts: the policy `none` has no use for this key"));
    CHECK_THAT(error("{policy: table, drafts: 3, table: [[1, 1]], acceptance: {rate: 1}}"),
               ContainsSubstring("speculation.drafts: the policy `table` has no use for this key"));
    CHECK_THAT(error("{policy: static, drafts: 3, table: [[1, 1]], acceptance: {rate: 1}}"),
               ContainsSubstring("speculation.table: the policy `static` has no use for this key"));
    CHECK_THAT(error("{policy: static, drafts: -1, acceptance: {rate: 1}}"), ContainsSubstring("from 0 to"));
    CHECK_THAT(error("{policy: goodput, drafts: 0, acceptance: {rate: 1}}"), ContainsSubstring("from 1 to"));
    CHECK_THAT(error("{policy: static, drafts: 3, acceptance: {rate: 1.1}}"),
               ContainsSubstring("speculation.acceptance.rate: expected a finite number of at least 0"));
    CHECK_THAT(error("{policy: static, drafts: 3, acceptance: {rate: 1, rates: [1]}}"),
               ContainsSubstring("expected exactly one of rate, rates"));
    CHECK_THAT(error("{policy: static, drafts: 3, acceptance: {rates: []}}"),
               ContainsSubstring("at least 1 values"));
    CHECK_THAT(error("{policy: static, drafts: 3, acceptance: {rate: 1, half_context: 0}}"),
               ContainsSubstring("above 0"));
    CHECK_THAT(error("{policy: table, table: [[2, 3]], acceptance: {rate: 1}}"),
               ContainsSubstring("expected a table from batch 1 on, got 2"));
    CHECK_THAT(error("{policy: table, table: [[1, 3], [1, 2]], acceptance: {rate: 1}}"),
               ContainsSubstring("expected batches that ascend, got 1 after 1"));
    CHECK_THAT(error("{policy: table, table: [[1, 3, 4]], acceptance: {rate: 1}}"),
               ContainsSubstring("expected a pair"));
    CHECK_THAT(error("{policy: static, drafs: 3, acceptance: {rate: 1}}"), ContainsSubstring("`drafs`"));
}

TEST_CASE("a policy set by override takes the place of the file's choice") {
    const TemporaryFolder folder;
    const std::string file = folder.write(
        "e.yaml", to_yaml(load_experiment(
                      kAzure, {{"speculation", "{policy: static, drafts: 3, acceptance: {rate: 0.8}}"}})));
    CHECK(load_experiment(file, {{"speculation.policy", "none"}}).serving.speculation == SpeculationSpec{});
    const Experiment table =
        load_experiment(file, {{"speculation.policy", "table"}, {"speculation.table", "[[1, 2]]"}});
    CHECK(table.linear.drafts == 2);
    CHECK(table.serving.speculation.acceptance.rates == std::vector<double>{0.8});
    CHECK_THAT(error_of({{"speculation.policy", "none"}, {"speculation.drafts", "2"}}, file),
               ContainsSubstring("has no use"));
}

TEST_CASE("replicas, objectives, warm-up and service") {
    const Experiment e = load_experiment(kAzure, {{"replicas", "4"},
                                                  {"router", "least_loaded"},
                                                  {"slo", "{ttft: 1 s, tpot: 50 ms}"},
                                                  {"warmup", "60 s"},
                                                  {"service", "{kind: exponential, mean: 5 ms}"}});
    CHECK(e.serving.replicas == 4);
    CHECK(e.serving.router == RouterRule::kLeastLoaded);
    CHECK(e.serving.slo == SloSpec{time_from_seconds(1.0), time_from_us(50'000), std::nullopt});
    CHECK(e.serving.warmup == time_from_seconds(60.0));
    CHECK(e.serving.service == ServiceSpec{ServiceSpec::Kind::kExponential, time_from_us(5000)});
    CHECK(read_back(e).serving == e.serving);
    CHECK(load_experiment(kAzure).serving == ServingSpec{});

    CHECK_THAT(error_of({{"replicas", "0"}}), ContainsSubstring("replicas: expected an integer from 1"));
    CHECK_THAT(error_of({{"router", "random"}}), ContainsSubstring("round_robin, least_loaded"));
    CHECK_THAT(error_of({{"slo", "{ttft: 1}"}}), ContainsSubstring("without a unit"));
    CHECK_THAT(error_of({{"slo", "{}"}}), ContainsSubstring("expected at least one of ttft, tpot, e2e"));
    CHECK_THAT(error_of({{"slo.itl", "1 s"}}), ContainsSubstring("unknown key `itl`"));
    CHECK_THAT(error_of({{"warmup", "-1 s"}}), ContainsSubstring("warmup"));
    CHECK_THAT(error_of({{"warmup", "9 s"}, {"horizon", "9 s"}}),
               ContainsSubstring("warmup: expected less than the horizon of 9 s"));
    CHECK_THAT(error_of({{"service", "{kind: uniform, mean: 1 s}"}}),
               ContainsSubstring("constant, exponential"));
    CHECK_THAT(error_of({{"service", "{kind: constant}"}}), ContainsSubstring("service.mean: missing"));
}

TEST_CASE("a steady workload has no use for what concerns arrivals") {
    for (const char* key : {"replicas", "router", "slo", "warmup", "service"}) {
        const std::string value = key == std::string("replicas")  ? "2"
                                  : key == std::string("router")  ? "round_robin"
                                  : key == std::string("slo")     ? "{ttft: 1 s}"
                                  : key == std::string("service") ? "{kind: constant, mean: 1 s}"
                                                                  : "1 s";
        CHECK_THAT(error_of({{key, value}}, kSteady),
                   ContainsSubstring(std::string(key) + ": nothing arrives in a steady workload"));
    }
}

}  // namespace
}  // namespace kvsim
