// kvsim capacity: what a request occupies, how many fit, and why no more.
#include "sim/memory/capacity.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "sim/cli/command.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/setup.hpp"
#include "sim/cli/table.hpp"

namespace kvsim {
namespace {

struct CapacityOptions {
    FileOptions input;
    std::optional<std::int64_t> tokens;
    bool json = false;
};

std::string_view limit_name(const Capacity& c) {
    return kLimitNames[static_cast<std::size_t>(c.limit)];
}

nlohmann::ordered_json to_json(const Experiment& experiment, const Capacity& c, std::int64_t tokens) {
    nlohmann::ordered_json json;
    json["model"] = experiment.model.name;
    json["device"] = experiment.device.name;
    json["engine"] = experiment.engine.name;
    json["per_request"] = {{"state_bytes", c.state_per_request.value()},
                           {"conv_bytes", c.conv_per_request.value()},
                           {"buffer_bytes", c.buffer_per_request.value()},
                           {"kv_bytes_per_token", c.kv_per_token.value()}};
    json["slots_per_request"] = c.slots_per_request;
    json["tokens_per_request"] = tokens;
    json["weights_bytes"] = c.weights.value();
    json["state_pool_bytes"] = c.state_pool.value();
    json["kv_pool_bytes"] = c.kv_pool.value();
    json["state_slots"] = c.state_slots;
    json["kv_tokens"] = c.kv_tokens;
    json["requests"] = c.requests;
    json["limit"] = limit_name(c);
    return json;
}

std::string to_table(const Experiment& experiment, const Capacity& c, std::int64_t tokens) {
    const auto mib = [](Bytes bytes) {
        return fmt::format("{:.2f} MiB", static_cast<double>(bytes.value()) / (1 << 20));
    };
    const Bytes slot = c.state_per_request + c.conv_per_request + c.buffer_per_request;
    using enum TextTable::Align;
    TextTable table({{"memory", kLeft}, {"size"}, {"", kLeft}});
    table.add_row({"weights", mib(c.weights), ""});
    table.add_row({"state, one copy", mib(c.state_per_request), "per request"});
    table.add_row({"convolution, one copy", mib(c.conv_per_request), "per request"});
    table.add_row({"buffer", mib(c.buffer_per_request), "per request"});
    table.add_row({"slots", mib(slot * c.slots_per_request),
                   fmt::format("per request, {} of them", c.slots_per_request)});
    table.add_row(
        {"KV cache", mib(c.kv_per_token * tokens), fmt::format("per request of {} tokens", tokens)});
    table.add_row({"state pool", mib(c.state_pool), fmt::format("{} slots", c.state_slots)});
    table.add_row({"KV pool", mib(c.kv_pool), fmt::format("{} tokens", c.kv_tokens)});
    return fmt::format("{} on {} under {}: {} requests of {} tokens fit, limited by {}\n\n{}",
                       experiment.model.name, experiment.device.name, experiment.engine.name, c.requests,
                       tokens, limit_name(c), table.str());
}

ExitCode capacity(const CapacityOptions& options) {
    const Experiment experiment = load_experiment(options.input);
    const std::int64_t tokens = options.tokens ? *options.tokens : mean_tokens_per_request(experiment);
    const Capacity result = solve_capacity(experiment, tokens);
    if (options.json) {
        fmt::print("{}\n", to_json(experiment, result, tokens).dump(2));
    } else {
        fmt::print("{}", to_table(experiment, result, tokens));
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_capacity(CLI::App& app) {
    const auto options = std::make_shared<CapacityOptions>();
    add_file_options(app, options->input, "Experiment (YAML)");
    app.add_option(
           "--tokens", options->tokens,
           "Prompt + output tokens of a request (default: context + 1 of a steady workload, else the mean)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
    app.add_flag("--json", options->json, "Print JSON");
    return [options](std::span<const std::string>) { return capacity(*options); };
}

}  // namespace kvsim
