// kvsim run: one experiment, its metrics, and a folder of results when asked for.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/result_files.hpp"
#include "sim/cli/run_experiment.hpp"
#include "sim/cli/table.hpp"
#include "sim/results/fields.hpp"
#include "sim/results/requests_csv.hpp"

namespace kvsim {
namespace {

struct RunOptions {
    FileOptions input;
    std::string out;
    std::string requests;
    bool json = false;
};

// "fitted 12 %, roofline 88 %": how far the result rests on measurement.
std::string shares_by_source(const RunResult& r) {
    std::string text;
    for (std::size_t i = 0; i < kSourceNames.size(); ++i) {
        if (r.time_by_source[i] == Time()) continue;
        if (!text.empty()) text += ", ";
        text += fmt::format("{} {:.1f} %", kSourceNames[i], 100.0 * (r.time_by_source[i] / r.busy));
    }
    return text;
}

// ", 3 drafts"; ", up to 5 drafts (goodput)"; or nothing.
std::string drafts(const ServingSpec& serving) {
    const SpeculationSpec& s = serving.speculation;
    const int most = s.most_drafts();
    if (most == 0) return "";
    const bool chosen = s.policy != "static";
    return fmt::format(", {}{} draft{}{}", chosen ? "up to " : "", most, most == 1 ? "" : "s",
                       chosen ? fmt::format(" ({})", s.policy) : "");
}

// "rejected by blocks: 3", or nothing.
std::string rejections(const RejectedBy& by) {
    std::string text;
    const std::pair<std::string_view, std::int64_t> limits[] = {{"state_slots", by.state_slots},
                                                                {"kv_tokens", by.kv_tokens},
                                                                {"max_running", by.max_running},
                                                                {"blocks", by.blocks},
                                                                {"bytes", by.bytes}};
    for (const auto& [limit, count] : limits) {
        if (count > 0) text += fmt::format("rejected by {}: {}\n", limit, count);
    }
    return text;
}

std::string stability(const StabilityTest& test) {
    std::string text = fmt::format("queue: {}", kStabilityNames[static_cast<std::size_t>(test.verdict)]);
    if (test.growth)
        text += fmt::format(", {:.4f} +- {:.4f} requests stay per arrival", *test.growth, *test.ci95);
    return text + '\n';
}

// Where the time of requests goes, in mean and among the slowest.
std::string breakdown_table(const RunResult& r) {
    using enum TextTable::Align;
    TextTable table({{"E2E ms", kLeft}, {"all"}, {"%"}, {"slowest 1 %"}, {"%"}});
    const std::pair<const char*, double Breakdown::*> parts[] = {
        {"queue", &Breakdown::queue_ms},         {"prefill", &Breakdown::prefill_ms},
        {"decode", &Breakdown::decode_ms},       {"interference", &Breakdown::interference_ms},
        {"preempted", &Breakdown::preempted_ms}, {"flush", &Breakdown::flush_ms}};
    for (const auto& [title, part] : parts) {
        std::vector<std::string> cells{title};
        for (const Breakdown* b : {&r.breakdown, &r.slowest_breakdown}) {
            cells.push_back(fmt::format("{:.2f}", b->*part));
            cells.push_back(fmt::format("{:.1f}", 100.0 * (b->*part) / b->e2e_ms()));
        }
        table.add_row(cells);
    }
    return table.str();
}

std::string to_table(const Experiment& experiment, const RunResult& r) {
    using enum TextTable::Align;
    const auto cell = [](const std::optional<double>& value) {
        return value ? fmt::format("{:.2f}", *value) : std::string("-");
    };
    TextTable table(
        {{"", kLeft}, {"mean"}, {"+-"}, {"p50"}, {"p90"}, {"p95"}, {"p99"}, {"max"}, {"samples"}});
    const auto add = [&](const char* title, const Summary& s) {
        table.add_row({title, cell(s.mean), cell(s.ci95), cell(s.p50), cell(s.p90), cell(s.p95), cell(s.p99),
                       cell(s.max), fmt::format("{}", s.count)});
    };
    add("prompt tokens", r.prompt_tokens);
    add("output tokens", r.output_tokens);
    add("TTFT ms", r.ttft_ms);
    add("TPOT ms", r.tpot_ms);
    add("ITL ms", r.itl_ms);
    if (r.acceptance_length.value_or(1.0) > 1.0) add("ITL ms/token", r.itl_token_ms);
    add("E2E ms", r.e2e_ms);
    add("queue ms", r.queue_ms);
    const RequestCounts& n = r.requests;
    std::string text =
        fmt::format("{}: {} on {}, {} form{}\n", experiment.name, experiment.model.name,
                    experiment.device.name, name(experiment.linear.form), drafts(experiment.serving));
    text += fmt::format("requests: {} read = {} completed + {} rejected + {} dropped + {} unfinished\n",
                        n.read, n.completed, n.rejected, n.dropped, n.unfinished);
    text += rejections(r.rejected_by);
    text += fmt::format("{} steps in {:.3f} s simulated, {:.1f} output tokens/s\n", r.steps,
                        to_seconds(r.simulated), r.output_tokens_per_s);
    if (r.steps > 0) {
        text += fmt::format("a step: {:.3f} ms and {:.2f} requests on average\n",
                            to_us(r.busy) / 1e3 / static_cast<double>(r.steps), r.mean_batch);
    }
    if (r.goodput_per_s) {
        text += fmt::format("goodput {:.3f} requests/s, objectives met by {:.1f} %\n", *r.goodput_per_s,
                            100.0 * r.slo_attainment.value_or(0.0));
    }
    if (experiment.serving.speculation.most_drafts() > 0 && r.acceptance_length)
        text += fmt::format("speculation: {:.2f} tokens per step of a request\n", *r.acceptance_length);
    if (r.prefix_cache && r.prefix_cache->asked_tokens > 0) {
        text += fmt::format("prefix cache: {:.1f} % of the tokens to prefill were there\n",
                            100.0 * static_cast<double>(r.prefix_cache->hit_tokens) /
                                static_cast<double>(r.prefix_cache->asked_tokens));
    }
    if (r.preemptions > 0) text += fmt::format("{} preemptions\n", r.preemptions);
    text += fmt::format("step time by source: {}\n", shares_by_source(r));
    if (!std::holds_alternative<SteadyWorkload>(experiment.workload)) text += stability(r.stability);
    text += '\n' + table.str();
    if (r.breakdown.requests > 0) text += '\n' + breakdown_table(r);
    return text;
}

ExitCode run(const RunOptions& options, std::span<const std::string> command_line) {
    const Experiment experiment = load_experiment(options.input);
    if (!options.out.empty()) require_replaceable(options.out);
    if (!options.requests.empty()) require_writable(options.requests, "--requests");
    const RunOutcome outcome = run_experiment(experiment);
    if (outcome.status == RunStatus::kInfeasible)
        throw_mistake({options.input.file}, outcome.key, outcome.reason);
    if (outcome.status == RunStatus::kFailed) throw std::runtime_error(outcome.reason);
    if (!options.out.empty()) {
        Sweep single;
        single.points.resize(1);
        write_results(options.out,
                      {runs_csv(single, {&outcome, 1}),
                       manifest_json(command_line, experiment, {&experiment, 1}, {options.input.file}),
                       resolved_yaml(single, experiment)});
    }
    if (!options.requests.empty()) {
        std::filesystem::create_directories(std::filesystem::absolute(options.requests).parent_path());
        replace_file(options.requests,
                     [&](std::ostream& out) { write_requests_csv(out, outcome.result->finished); });
    }
    if (options.json) {
        fmt::print("{}\n", to_json(*outcome.result).dump(2));
    } else {
        fmt::print("{}", to_table(experiment, *outcome.result));
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_run(CLI::App& app) {
    const auto options = std::make_shared<RunOptions>();
    add_file_options(app, options->input, "Experiment (YAML)");
    app.add_option("--out", options->out, "Write runs.csv, manifest.json and resolved.yaml into this folder")
        ->type_name("DIR")
        ->check(
            [](const std::string& folder) { return folder.empty() ? "expected a folder, got nothing" : ""; });
    app.add_option("--requests", options->requests, "Write a line per completed request into this file (CSV)")
        ->type_name("FILE")
        ->check([](const std::string& file) { return file.empty() ? "expected a file, got nothing" : ""; });
    app.add_flag("--json", options->json, "Print JSON");
    return [options](std::span<const std::string> command_line) { return run(*options, command_line); };
}

}  // namespace kvsim
