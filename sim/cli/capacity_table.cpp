#include "sim/cli/capacity_table.hpp"

#include <fmt/format.h>

#include <variant>

#include "sim/base/check.hpp"
#include "sim/cli/setup.hpp"
#include "sim/cli/table.hpp"

namespace kvsim {

namespace {

using enum TextTable::Align;

std::string_view limit_name(const Capacity& c) {
    return kLimitNames[static_cast<std::size_t>(c.limit)];
}

std::string mib(Bytes bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes.value()) / (1 << 20));
}

bool is_paged(const CapacityAnswer& a) {
    return std::holds_alternative<PagedPool>(a.experiment.engine.memory.pools);
}

std::string_view pool_name(const CapacityAnswer& a) {
    return kMemoryPoolNames[a.experiment.engine.memory.pools.index()];
}

nlohmann::ordered_json blocks_json(const BlockPool& pool, std::int64_t tokens) {
    return {{"block_bytes", pool.block.value()},
            {"page_tokens", pool.page_tokens},
            {"layers_per_group", pool.layers_per_group},
            {"blocks", pool.blocks},
            {"state_blocks_per_request", pool.state_blocks()},
            {"kv_blocks_per_request", pool.kv_blocks(tokens)}};
}

nlohmann::ordered_json request_json(const RequestBytes& r) {
    return {{"state_bytes", r.state.value()},  {"conv_bytes", r.conv.value()},
            {"ring_bytes", r.ring.value()},    {"temporary_bytes", r.temporary.value()},
            {"kv_bytes", r.kv.value()},        {"padding_bytes", r.padding.value()},
            {"total_bytes", r.total().value()}};
}

// A share of a request, which nobody worked out where the weights alone do not fit.
std::string share_mib(const Capacity& c, Bytes bytes) {
    return c.limit == Limit::kWeights ? "-" : mib(bytes);
}

// A line per engine beside whose weights nothing fits, or nothing.
std::string weights_misfits(std::span<const CapacityAnswer> answers) {
    std::string text;
    for (const CapacityAnswer& a : answers) {
        if (a.capacity.limit != Limit::kWeights) continue;
        const std::string line = weights_misfit(a.experiment, a.capacity) + '\n';
        if (text.find(line) == std::string::npos) text += line;
    }
    return text;
}

// The base of a row's gain.
bool is_base(const CapacityAnswer& a) {
    return a.experiment.linear.form == Form::kRecurrent || a.experiment.linear.form == Form::kVerifyStored;
}

// Requests that memory holds over those of the base; empty where either holds none.
std::string gain(const CapacityAnswer& a, const CapacityAnswer& base) {
    if (a.capacity.memory_requests == 0 || base.capacity.memory_requests == 0) return "";
    return fmt::format("{:.2f}x", static_cast<double>(a.capacity.memory_requests) /
                                      static_cast<double>(base.capacity.memory_requests));
}

void add_pools(TextTable& table, const CapacityAnswer& a) {
    const Capacity& c = a.capacity;
    if (is_paged(a)) {
        const std::int64_t kv = c.paged.kv_blocks(a.tokens_per_request);
        table.add_row({"shared pool", mib(c.kv_pool), fmt::format("{} blocks", c.paged.blocks)});
        table.add_row(
            {"block", mib(c.paged.block),
             fmt::format("{} per request: {} of states, {} of {} tokens", c.paged.state_blocks() + kv,
                         c.paged.state_blocks(), kv, c.paged.page_tokens)});
    } else if (std::holds_alternative<SplitPools>(a.experiment.engine.memory.pools)) {
        table.add_row({"state pool", mib(c.state_pool),
                       fmt::format("{} slots, {} per request", c.state_slots, c.slots_per_request)});
        table.add_row({"KV pool", mib(c.kv_pool), fmt::format("{} tokens", c.kv_tokens)});
    } else {
        table.add_row({"pool", mib(c.kv_pool), ""});
    }
}

}  // namespace

nlohmann::ordered_json to_json(const CapacityAnswer& a) {
    const Capacity& c = a.capacity;
    const Experiment& e = a.experiment;
    nlohmann::ordered_json json;
    json["model"] = e.model.name;
    json["device"] = e.device.name;
    json["engine"] = e.engine.name;
    json["pools"] = pool_name(a);
    json["form"] = name(e.linear.form);
    json["drafts"] = e.linear.drafts;
    json["per_request"] = {{"state_bytes", c.state_per_request.value()},
                           {"conv_bytes", c.conv_per_request.value()},
                           {"buffer_bytes", c.buffer_per_request.value()},
                           {"kv_bytes_per_token", c.kv_per_token.value()}};
    json["request"] = request_json(c.request);
    json["slots_per_request"] = c.slots_per_request;
    json["tokens_per_request"] = a.tokens_per_request;
    json["weights_bytes"] = c.weights.value();
    json["activations_bytes"] = c.activations.value();
    json["state_pool_bytes"] = c.state_pool.value();
    json["kv_pool_bytes"] = c.kv_pool.value();
    json["state_slots"] = c.state_slots;
    json["kv_tokens"] = c.kv_tokens;
    if (is_paged(a)) json["paged"] = blocks_json(c.paged, a.tokens_per_request);
    json["max_running_requests"] = c.max_running;
    json["memory_requests"] = c.memory_requests;
    json["requests"] = c.requests;
    json["limit"] = limit_name(c);
    return json;
}

std::string to_table(const CapacityAnswer& a) {
    const Capacity& c = a.capacity;
    const Experiment& e = a.experiment;
    const std::string per_request = "per request";
    TextTable table({{"memory", kLeft}, {"MiB"}, {"", kLeft}});
    table.add_row({"weights", mib(c.weights), ""});
    table.add_row({"activations, reserve", mib(c.activations), ""});
    table.add_row({"state, one copy", mib(c.state_per_request), per_request});
    table.add_row({"convolution, one copy", mib(c.conv_per_request), per_request});
    table.add_row({"ring, one copy", mib(c.buffer_per_request), per_request});
    table.add_row({"states", share_mib(c, c.request.state + c.request.conv + c.request.ring), per_request});
    table.add_row({"states of verification", share_mib(c, c.request.temporary),
                   fmt::format("per request of {} drafts", e.linear.drafts)});
    table.add_row({"KV cache", share_mib(c, c.request.kv),
                   fmt::format("per request of {} tokens", a.tokens_per_request)});
    table.add_row({"rounded up", share_mib(c, c.request.padding), per_request});
    table.add_row({"all of it", share_mib(c, c.request.total()), per_request});
    if (c.limit != Limit::kWeights) add_pools(table, a);
    const std::string held = c.memory_requests > c.requests
                                 ? fmt::format(" (memory would hold {})", c.memory_requests)
                                 : std::string();
    const std::string group = e.parallelism.attention_dp > 1
                                  ? fmt::format(" in each of {} groups", e.parallelism.attention_dp)
                                  : "";
    return fmt::format("{} on {}{} under {}, {}: {} requests of {} tokens fit{}, limited by {}{}\n{}\n{}",
                       e.model.name, e.device.name, ranks(e.parallelism), e.engine.name, name(e.linear.form),
                       c.requests, a.tokens_per_request, group, limit_name(c), held, weights_misfits({&a, 1}),
                       table.str());
}

nlohmann::ordered_json comparison_json(std::span<const CapacityAnswer> answers) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const CapacityAnswer& answer : answers) rows.push_back(to_json(answer));
    return {{"alternatives", std::move(rows)}};
}

std::string comparison_table(std::span<const CapacityAnswer> answers) {
    KVSIM_CHECK(!answers.empty() && is_base(answers[0]), "nothing to compare with among {} answers",
                answers.size());
    TextTable table({{"engine", kLeft},
                     {"form", kLeft},
                     {"drafts"},
                     {"requests"},
                     {"limit", kLeft},
                     {"in memory"},
                     {"gain"},
                     {"state"},
                     {"conv"},
                     {"ring"},
                     {"temporary"},
                     {"KV"},
                     {"padding"},
                     {"MiB/request"}});
    const CapacityAnswer* base = answers.data();
    for (const CapacityAnswer& a : answers) {
        if (is_base(a)) base = &a;
        const Capacity& c = a.capacity;
        const RequestBytes& r = c.request;
        table.add_row({a.experiment.engine.name, std::string(name(a.experiment.linear.form)),
                       std::to_string(a.experiment.linear.drafts), std::to_string(c.requests),
                       std::string(limit_name(c)), std::to_string(c.memory_requests), gain(a, *base),
                       share_mib(c, r.state), share_mib(c, r.conv), share_mib(c, r.ring),
                       share_mib(c, r.temporary), share_mib(c, r.kv), share_mib(c, r.padding),
                       share_mib(c, r.total())});
    }
    const Experiment& e = answers[0].experiment;
    return fmt::format(
        "{} on {}{}: requests of {} tokens, by engine, form and drafts; buffers of {} tokens\n{}\n{}",
        e.model.name, e.device.name, ranks(e.parallelism), answers[0].tokens_per_request,
        answers.back().experiment.linear.buffer_length, weights_misfits(answers), table.str());
}

}  // namespace kvsim
