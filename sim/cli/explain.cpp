// kvsim explain: one step of an experiment, operator by operator.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "sim/cli/command.hpp"
#include "sim/cli/decode_step.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/setup.hpp"
#include "sim/cli/table.hpp"
#include "sim/serving/length_times.hpp"

namespace kvsim {
namespace {

constexpr std::int64_t kDefaultBatch = 1;
constexpr std::int64_t kDefaultContext = 1024;
constexpr int kMostDrafts = 64;
constexpr std::int64_t kMostCachedTokens = std::int64_t{1} << 40;  // bytes and FLOPs stay within 64 bits

struct ExplainOptions {
    FileOptions input;
    std::optional<std::int64_t> batch;
    std::optional<std::int64_t> context;
    std::optional<int> drafts;
    std::optional<std::int64_t> prefill;  // tokens of a prompt; empty: a decode step
    bool json = false;
    bool dot = false;
};

std::int64_t total(const ByteLedger& ledger) {
    std::int64_t sum = 0;
    for (const Bytes bytes : ledger) sum += bytes.value();
    return sum;
}

class CostPricer final : public StepPricer {
  public:
    explicit CostPricer(const StepCost& cost) : cost_(cost) {}
    StepPrice price(const StepShape& shape) const override { return cost_.price(shape); }

  private:
    const StepCost& cost_;
};

// Whether the device could hold the step's sequences; a step that it cannot is priced all the same.
bool fits(const Capacity& capacity, const DecodeStep& step) {
    return step.shape.decode.sequences + step.shape.prefill.sequences <= capacity.requests;
}

// "", or ", 8 buffered tokens, 0 flushes (one step; ...)": parts of a flush show in an average alone
std::string phase(Form form, const LinearWork& work) {
    if (form != Form::kBuffered && form != Form::kVerifyBuffered) return "";
    return fmt::format(", {} buffered tokens, {} flushes (one step; run averages over the buffer's cycle)",
                       work.buffered_tokens, work.flushes);
}

// "", or ", 4 tokens verified and 3 drafted each"; a prompt has nothing to verify yet
std::string drafts(const DecodeStep& step) {
    const int drafts = step.shape.drafts;
    if (drafts == 0) return "";
    if (step.shape.prefill.sequences > 0) return fmt::format(", {} drafted each", drafts);
    return fmt::format(", {} tokens verified and {} drafted each", drafts + 1, drafts);
}

// A step, its price, and what the reader should know of how it was chosen: lines, or nothing.
struct Explanation {
    Experiment experiment;
    Capacity capacity;
    DecodeStep step;
    StepPrice price;
    std::vector<OperatorCost> operators;
    std::string notes;
};

nlohmann::ordered_json to_json(const Explanation& explanation) {
    const auto& [experiment, capacity, step, price, operators, notes] = explanation;
    const LinearWork& work = step.shape[step.form];
    nlohmann::ordered_json json;
    json["model"] = experiment.model.name;
    json["device"] = experiment.device.name;
    json["parallelism"] = {{"tp", experiment.parallelism.tp},
                           {"ep", experiment.parallelism.ep},
                           {"attention_dp", experiment.parallelism.attention_dp}};
    json["form"] = name(step.form);
    json["buffer_length"] = experiment.linear.buffer_length;
    json["batch"] = step.shape.decode.sequences + step.shape.prefill.sequences;
    const PrefillShape& prompts = step.shape.prefill;
    json["context"] = prompts.sequences > 0 ? prompts.cached_tokens / prompts.sequences
                                            : step.shape.decode.context_max;
    json["prefill_tokens"] = prompts.new_tokens;
    json["buffered_tokens"] = work.buffered_tokens;
    json["flushes"] = work.flushes;
    json["drafts"] = step.shape.drafts;
    json["fits"] = fits(capacity, step);
    json["step_us"] = to_us(price.time);
    json["step_uncertainty_us"] = to_us(step_uncertainty(operators));
    for (std::size_t i = 0; i < price.time_by_source.size(); ++i) {
        if (price.time_by_source[i] > Time())
            json["step_us_by_source"][kSourceNames[i]] = to_us(price.time_by_source[i]);
    }
    json["operators"] = nlohmann::ordered_json::array();
    for (const OperatorCost& op : operators) {
        json["operators"].push_back({{"name", op.name},
                                     {"family", kCostFamilyNames[static_cast<std::size_t>(op.family)]},
                                     {"count", op.count},
                                     {"bytes", total(op.bytes)},
                                     {"flops", op.flops.value()},
                                     {"launches", op.launches},
                                     {"time_us", to_us(op.time)},
                                     {"gap_us", to_us(op.gap)},
                                     {"uncertainty", op.uncertainty},
                                     {"critical", op.critical},
                                     {"bound", kBoundNames[static_cast<std::size_t>(op.bound)]},
                                     {"source", kSourceNames[static_cast<std::size_t>(op.source)]}});
    }
    return json;
}

// "82.1 % fitted, 17.9 % roofline"
std::string sources(const StepPrice& price) {
    std::string text;
    for (std::size_t i = 0; i < price.time_by_source.size(); ++i) {
        if (price.time_by_source[i] == Time()) continue;
        text += fmt::format("{}{:.1f} % {}", text.empty() ? "" : ", ",
                            100.0 * (price.time_by_source[i] / price.time), kSourceNames[i]);
    }
    return text;
}

std::string to_table(const Explanation& explanation) {
    using enum TextTable::Align;
    const auto& [experiment, capacity, step, price, operators, notes] = explanation;
    TextTable table({{"operator", kLeft},
                     {"count"},
                     {"MB"},
                     {"GFLOP"},
                     {"time us"},
                     {"share %"},
                     {"+- %"},
                     {"bound", kLeft},
                     {"source", kLeft},
                     {"path", kLeft}});
    for (const OperatorCost& op : operators) {
        table.add_row({op.name, fmt::format("{}", op.count),
                       fmt::format("{:.3f}", static_cast<double>(total(op.bytes)) / 1e6),
                       fmt::format("{:.3f}", static_cast<double>(op.flops.value()) / 1e9),
                       fmt::format("{:.2f}", to_us(op.time)),
                       op.critical ? fmt::format("{:.1f}", 100.0 * (op.time / price.time)) : "-",
                       fmt::format("{:.0f}", 100.0 * op.uncertainty),
                       std::string(kBoundNames[static_cast<std::size_t>(op.bound)]),
                       std::string(kSourceNames[static_cast<std::size_t>(op.source)]),
                       op.critical ? "critical" : "beside"});
    }
    std::int64_t launches = 0;
    for (const OperatorCost& op : operators) launches += op.launches;
    const std::string misfit =
        fits(capacity, step)
            ? ""
            : fmt::format("does not fit: {} requests of this length do, limited by {}\n", capacity.requests,
                          kLimitNames[static_cast<std::size_t>(capacity.limit)]);
    const PrefillShape& prompts = step.shape.prefill;
    const LinearWork& work = step.shape[step.form];
    const std::string what = prompts.sequences > 0
                                 ? fmt::format("prefill of {} x {} tokens after {} cached ones each{}",
                                               prompts.sequences, prompts.new_tokens / prompts.sequences,
                                               prompts.cached_tokens / prompts.sequences, drafts(step))
                                 : fmt::format("decode step of {} sequences at context {}, {} form{}{}",
                                               work.sequences, step.shape.decode.context_max, name(step.form),
                                               drafts(step), phase(step.form, work));
    return fmt::format("{} on {}{}: {}\n{}{}step time {:.1f} us +- {:.1f} ({} launches): {}\n\n{}",
                       experiment.model.name, experiment.device.name, ranks(experiment.parallelism), what,
                       notes, misfit, to_us(price.time), to_us(step_uncertainty(operators)), launches,
                       sources(price), table.str());
}

// Bytes and FLOPs stay within 64 bits.
void check_size(std::int64_t batch, std::int64_t context, std::int64_t prompt) {
    if (context > kMostCachedTokens / batch) {
        throw_mistake({}, "--batch, --context",
                      fmt::format("expected at most {} cached tokens in all, got {} x {}", kMostCachedTokens,
                                  batch, context));
    }
    if (prompt > 0 && context + prompt > kMostCachedTokens / batch / prompt) {
        throw_mistake(
            {}, "--batch, --prefill, --context",
            fmt::format("expected at most {} pairs of a new token and one that it sees, got {} x {} x {}",
                        kMostCachedTokens, batch, prompt, context + prompt));
    }
}

// Drafts of the step: those asked for, else the file's where it fixes their number.
std::optional<int> drafts_of(const ExplainOptions& options, const SpeculationSpec& speculation) {
    if (options.drafts || speculation.policy != "static") return options.drafts;
    return speculation.drafts;
}

// "assumed, because the workload is not steady: --batch 1 --context 1024", of what was left out, or nothing.
std::string assumed(const ExplainOptions& options) {
    std::string words;
    if (!options.batch) words += fmt::format(" --batch {}", kDefaultBatch);
    if (!options.context) words += fmt::format(" --context {}", kDefaultContext);
    return words.empty() ? "" : fmt::format("assumed, because the workload is not steady:{}\n", words);
}

ExitCode explain(const ExplainOptions& options) {
    Experiment experiment = load_experiment(options.input);
    const LinearServing decode = experiment.linear;
    SpeculationSpec& speculation = experiment.serving.speculation;
    const std::optional<int> drafts = drafts_of(options, speculation);
    std::string notes;
    if (drafts) {
        experiment.linear.form = with_drafts(decode.form, *drafts);
        experiment.linear.drafts = *drafts;
        speculation = {.policy = "static", .drafts = *drafts};
    } else if (speculation.most_drafts() > 0) {
        notes =
            fmt::format("without drafts: speculation `{}` chooses their number; --drafts 1..{} shows one\n",
                        speculation.policy, speculation.most_drafts());
    }
    const auto* steady = std::get_if<SteadyWorkload>(&experiment.workload);
    const std::int64_t prompt = options.prefill.value_or(0);
    const bool decodes = prompt == 0;
    if (decodes && !steady) notes += assumed(options);
    const std::int64_t batch = options.batch.value_or(decodes && steady ? steady->batch : kDefaultBatch);
    const std::int64_t context = options.context.value_or(!decodes ? 0
                                                          : steady ? steady->context
                                                                   : kDefaultContext);
    check_size(batch, context, prompt);
    const Capacity capacity = solve_capacity(experiment, context + std::max<std::int64_t>(prompt, 1));
    const StepCost cost = make_step_cost(experiment);
    const CostPricer pricer(cost);
    const PricedLengths times(pricer);
    DecodeStep step = !decodes ? DecodeStep{Form::kRecurrent, prefill_step(prompt, context, batch)}
                               : decode_step(decode, batch, context, &times);
    if (drafts) add_drafts(step, *drafts);
    if (options.dot) {
        fmt::print("{}", cost.graphviz(step.shape));
        return ExitCode::kGood;
    }
    const Explanation explanation{.experiment = std::move(experiment),
                                  .capacity = capacity,
                                  .step = step,
                                  .price = cost.price(step.shape),
                                  .operators = cost.explain(step.shape),
                                  .notes = std::move(notes)};
    if (options.json) {
        fmt::print("{}\n", to_json(explanation).dump(2));
    } else {
        fmt::print("{}", to_table(explanation));
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_explain(CLI::App& app) {
    const auto options = std::make_shared<ExplainOptions>();
    add_file_options(app, options->input, "Experiment (YAML)");
    app.add_option("--batch", options->batch,
                   fmt::format("Sequences (default: of a steady workload, else {}; {} with --prefill)",
                               kDefaultBatch, kDefaultBatch))
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    app.add_option(
           "--prefill", options->prefill,
           "Take apart a chunk of so many tokens of --batch prompts instead, after --context cached ones "
           "(default: 0)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
    app.add_option(
           "--drafts", options->drafts,
           "Verify so many drafts of every sequence, and let the MTP module propose as many (default: "
           "of static speculation, else 0)")
        ->check(CLI::Range(0, kMostDrafts));
    app.add_option("--context", options->context,
                   fmt::format("Tokens cached per sequence (default: of a steady workload, else {})",
                               kDefaultContext))
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
    CLI::Option* json = app.add_flag("--json", options->json, "Print JSON");
    app.add_flag("--dot", options->dot, "Print the graph of operators for Graphviz")->excludes(json);
    return [options](std::span<const std::string>) { return explain(*options); };
}

}  // namespace kvsim
