// Kinds of workloads with arrivals, and what may be asked of a trace.
#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

std::string error_of(const std::string& workload) {
    return config_error([&] { load_experiment(kAzure, {{"workload", workload}}); });
}

// Of the experiment, and of what its written form reads back as.
template <class Workload, class Check>
void check_workload(const std::vector<Override>& overrides, const Check& check) {
    const Experiment e = load_experiment(kAzure, overrides);
    check(std::get<Workload>(e.workload));
    const TemporaryFolder folder;
    const Experiment back = load_experiment(folder.write("resolved.yaml", to_yaml(e)));
    check(std::get<Workload>(back.workload));
    CHECK(to_yaml(back) == to_yaml(e));
}

const std::string kLengths = "requests: 9, prompt_tokens: {constant: 5}, output_tokens: {constant: 6}";

TEST_CASE("bursts, closed loops and declared lengths") {
    check_workload<SyntheticWorkload>(
        {{"workload", "{kind: gamma, rate: 3 /s, burstiness: 0.5, " + kLengths + "}"}},
        [](const SyntheticWorkload& w) {
            CHECK(w.burstiness == 0.5);
            CHECK(w.rate == Frequency(3.0));
            CHECK(w.concurrency == 0);
        });
    check_workload<SyntheticWorkload>(
        {{"workload", "{kind: closed, concurrency: 16, declared: 4096, " + kLengths + "}"}},
        [](const SyntheticWorkload& w) {
            CHECK(w.concurrency == 16);
            CHECK(w.requests == 9);
            CHECK(w.declared == 4096);
        });
    check_workload<SyntheticWorkload>(
        {{"workload", "{kind: poisson, rate: 3 /s, declared: true, " + kLengths + "}"}},
        [](const SyntheticWorkload& w) {
            CHECK(w.burstiness == 1.0);
            CHECK(w.declared == 0);
        });
}

TEST_CASE("what may be asked of a trace") {
    const TemporaryFolder folder;
    const std::string trace = folder.write("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n");
    check_workload<TraceWorkload>(
        {{"workload",
          "{kind: trace, trace: " + trace + ", speed: 2.5, limit: 100, spread: true, declared: 512}"}},
        [&](const TraceWorkload& w) {
            CHECK(w.path == trace);
            CHECK(w.speed == 2.5);
            CHECK(w.limit == 100);
            CHECK(w.spread);
            CHECK(w.declared == 512);
        });
    // Beside the scenario of a file whose arrivals the trace replaces.
    check_workload<TraceWorkload>({{"workload.trace", trace}, {"workload.speed", "2"}},
                                  [](const TraceWorkload& w) { CHECK(w.speed == 2.0); });
}

TEST_CASE("mistakes of workloads are named") {
    CHECK_THAT(error_of("{kind: gama, rate: 3 /s}"), ContainsSubstring("(did you mean `gamma`?)"));
    CHECK_THAT(error_of("{kind: gamma, rate: 3 /s, " + kLengths + "}"),
               ContainsSubstring("workload.burstiness: missing required key"));
    CHECK_THAT(error_of("{kind: gamma, rate: 3 /s, burstiness: 0, " + kLengths + "}"),
               ContainsSubstring("workload.burstiness: expected a finite number of at least 0.01"));
    CHECK_THAT(error_of("{kind: poisson, rate: 3 /s, burstiness: 2, " + kLengths + "}"),
               ContainsSubstring("unknown key `burstiness`"));
    CHECK_THAT(error_of("{kind: closed, rate: 3 /s, concurrency: 2, " + kLengths + "}"),
               ContainsSubstring("unknown key `rate`"));
    CHECK_THAT(error_of("{kind: closed, " + kLengths + "}"),
               ContainsSubstring("workload.concurrency: missing required key"));
    CHECK_THAT(error_of("{kind: poisson, rate: 3 /s, declared: false, " + kLengths + "}"),
               ContainsSubstring("workload.declared: expected an integer"));
    CHECK_THAT(error_of("{kind: poisson, rate: 3 /s, speed: 2, " + kLengths + "}"),
               ContainsSubstring("unknown key `speed`"));
    CHECK_THAT(error_of("{kind: trace, trace: /etc/hostname, speed: 0}"),
               ContainsSubstring("workload.speed: expected a finite number of"));
    CHECK_THAT(error_of("{kind: trace, trace: /etc/hostname, limit: 0}"),
               ContainsSubstring("workload.limit"));
    CHECK_THAT(error_of("{kind: trace, trace: /etc/hostname, spread: 1}"),
               ContainsSubstring("true or false"));
}

}  // namespace
}  // namespace kvsim
