#include "sim/results/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

namespace kvsim {
namespace {

template <class T>
FieldValue value_or_empty(const std::optional<T>& value) {
    return value ? FieldValue(*value) : FieldValue();
}

// part / whole; empty when there is no whole.
FieldValue ratio(double part, double whole) {
    return whole > 0.0 ? FieldValue(part / whole) : FieldValue();
}

std::int64_t total_bytes(const ByteLedger& ledger) {
    std::int64_t sum = 0;
    for (const Bytes bytes : ledger) sum += bytes.value();
    return sum;
}

// Bytes by which the forms of a linear layer differ.
double state_and_buffer_bytes(const ByteLedger& ledger) {
    std::int64_t sum = 0;
    for (const Owner owner :
         {Owner::kStateRead, Owner::kStateWrite, Owner::kBufferRead, Owner::kBufferWrite}) {
        sum += ledger[static_cast<std::size_t>(owner)].value();
    }
    return static_cast<double>(sum);
}

class FieldTable {
  public:
    std::vector<ResultField> take() { return std::move(fields_); }

    template <class Get>
    void add(std::string name, std::string help, Get get) {
        fields_.push_back(
            {std::move(name), std::move(help), [get](const RunResult& r) { return FieldValue(get(r)); }});
    }
    void add_summary(const std::string& name, const std::string& help, Summary RunResult::*summary) {
        add(name + ".count", help + ": samples",
            [summary](const RunResult& r) { return (r.*summary).count; });
        const std::pair<std::string_view, std::optional<double> Summary::*> statistics[] = {
            {"mean", &Summary::mean}, {"std", &Summary::std}, {"p50", &Summary::p50}, {"p90", &Summary::p90},
            {"p95", &Summary::p95},   {"p99", &Summary::p99}, {"max", &Summary::max}};
        for (const auto& [suffix, member] : statistics) {
            add(fmt::format("{}.{}", name, suffix), fmt::format("{}: {}", help, suffix),
                [summary, member = member](const RunResult& r) {
                    return value_or_empty(r.*summary.*member);
                });
        }
    }
    void add_interval(const std::string& name, const std::string& help, Summary RunResult::*summary) {
        add(name + ".ci95", fmt::format("{}: half the 95 % interval of the mean, by batch means", help),
            [summary](const RunResult& r) { return value_or_empty((r.*summary).ci95); });
    }
    // Mean time of each part of E2E, and its share.
    void add_breakdown(const std::string& name, const std::string& help, Breakdown RunResult::*breakdown) {
        add(name + ".requests", help + ": requests",
            [breakdown](const RunResult& r) { return (r.*breakdown).requests; });
        const std::tuple<std::string_view, std::string_view, double Breakdown::*> parts[] = {
            {"queue", "waiting for admission", &Breakdown::queue_ms},
            {"prefill", "from admission to the first token", &Breakdown::prefill_ms},
            {"decode", "steps of its own, without flushes", &Breakdown::decode_ms},
            {"interference", "prefill of others after the first token", &Breakdown::interference_ms},
            {"preempted", "out of memory and waiting, or computed again", &Breakdown::preempted_ms},
            {"flush", "decode steps made longer by flushes", &Breakdown::flush_ms}};
        for (const auto& [part, meaning, member] : parts) {
            add(fmt::format("{}.{}_ms", name, part), fmt::format("{}: mean time {}", help, meaning),
                [breakdown, member = member](const RunResult& r) {
                    const Breakdown& b = r.*breakdown;
                    return b.requests > 0 ? FieldValue(b.*member) : FieldValue();
                });
            add(fmt::format("{}.{}_share", name, part), fmt::format("{}: that as a share of E2E", help),
                [breakdown, member = member](const RunResult& r) {
                    return ratio((r.*breakdown).*member, (r.*breakdown).e2e_ms());
                });
        }
    }

  private:
    std::vector<ResultField> fields_;
};

void add_requests(FieldTable& table) {
    table.add("requests.read", "rows of the trace or requests generated; the sum of the next four",
              [](const RunResult& r) { return r.requests.read; });
    table.add("requests.completed", "requests that got their last token",
              [](const RunResult& r) { return r.requests.completed; });
    table.add("requests.rejected", "requests that can never fit, refused at arrival",
              [](const RunResult& r) { return r.requests.rejected; });
    table.add("requests.dropped", "rows without a token to generate",
              [](const RunResult& r) { return r.requests.dropped; });
    table.add("requests.unfinished", "requests that had not completed at the horizon; all of a steady batch",
              [](const RunResult& r) { return r.requests.unfinished; });
    table.add("rejected_by.state_slots", "rejected: too few state slots for one request",
              [](const RunResult& r) { return r.rejected_by.state_slots; });
    table.add("rejected_by.kv_tokens", "rejected: prompt and answer exceed the KV cache",
              [](const RunResult& r) { return r.rejected_by.kv_tokens; });
    table.add("rejected_by.max_running",
              "rejected: a steady batch above the engine's limit of running requests",
              [](const RunResult& r) { return r.rejected_by.max_running; });
    table.add("rejected_by.blocks", "rejected: prompt and answer exceed the blocks of a paged pool",
              [](const RunResult& r) { return r.rejected_by.blocks; });
    table.add("rejected_by.bytes", "rejected: prompt and answer exceed the pool of bytes",
              [](const RunResult& r) { return r.rejected_by.bytes; });
    table.add("inversions", "rows of the trace that came before their predecessor",
              [](const RunResult& r) { return r.inversions; });
    table.add("clamped", "drawn lengths that were moved into their bounds",
              [](const RunResult& r) { return r.clamped; });
    table.add_summary("prompt_tokens", "prompt of a request", &RunResult::prompt_tokens);
    table.add_summary("output_tokens", "answer of a request", &RunResult::output_tokens);
}

void add_latencies(FieldTable& table) {
    const auto metric = [&](const std::string& name, const std::string& help, Summary RunResult::*summary) {
        table.add_summary(name, help, summary);
        table.add_interval(name, help, summary);
    };
    metric("ttft_ms", "arrival to first token, queue included", &RunResult::ttft_ms);
    metric("tpot_ms", "(e2e - ttft) / (tokens - 1) of a request", &RunResult::tpot_ms);
    table.add_summary("itl_ms", "gap between two deliveries of tokens to a request", &RunResult::itl_ms);
    table.add_summary("itl_token_ms", "that gap / tokens delivered, for every token",
                      &RunResult::itl_token_ms);
    metric("e2e_ms", "arrival to last token", &RunResult::e2e_ms);
    metric("queue_ms", "arrival to admission", &RunResult::queue_ms);
    table.add("one_token_outputs", "completed requests without a TPOT",
              [](const RunResult& r) { return r.one_token_outputs; });
    table.add("acceptance_length", "tokens per delivery: 1 without speculation",
              [](const RunResult& r) { return value_or_empty(r.acceptance_length); });
    table.add("preemptions", "requests that lost their memory and were computed again",
              [](const RunResult& r) { return r.preemptions; });
    table.add_breakdown("breakdown", "completed requests", &RunResult::breakdown);
    table.add_breakdown("slowest_breakdown", "the 1 % with the largest E2E", &RunResult::slowest_breakdown);
}

void add_stability(FieldTable& table) {
    table.add(
        "stability", "whether the requests in the system keep growing: stable, unstable or too_short",
        [](const RunResult& r) { return kStabilityNames[static_cast<std::size_t>(r.stability.verdict)]; });
    table.add("backlog_growth.mean", "requests that stay, per arrival, over the second half of the arrivals",
              [](const RunResult& r) { return value_or_empty(r.stability.growth); });
    table.add("backlog_growth.ci95", "half the 95 % interval of that",
              [](const RunResult& r) { return value_or_empty(r.stability.ci95); });
}

void add_throughput(FieldTable& table) {
    table.add("generated_tokens", "output tokens, of unfinished requests too",
              [](const RunResult& r) { return r.generated_tokens; });
    table.add("output_tokens_per_s", "generated tokens / time, after the warm-up",
              [](const RunResult& r) { return r.output_tokens_per_s; });
    table.add("requests_per_s", "completed requests / time, after the warm-up",
              [](const RunResult& r) { return r.requests_per_s; });
    table.add("goodput_per_s", "requests that completed and met every objective / time, after the warm-up",
              [](const RunResult& r) { return value_or_empty(r.goodput_per_s); });
    table.add("slo_attainment", "those as a share of the requests that arrived",
              [](const RunResult& r) { return value_or_empty(r.slo_attainment); });
    table.add("steps", "prefill and decode steps", [](const RunResult& r) { return r.steps; });
    table.add("simulated_s", "time from zero to the last event, or to the horizon",
              [](const RunResult& r) { return to_seconds(r.simulated); });
    table.add("busy_s", "sum of the step times, of all replicas",
              [](const RunResult& r) { return to_seconds(r.busy); });
    table.add("mean_batch", "admitted requests, mean over steps",
              [](const RunResult& r) { return r.steps > 0 ? FieldValue(r.mean_batch) : FieldValue(); });
    table.add("step_us", "mean step time",
              [](const RunResult& r) { return ratio(to_us(r.busy), static_cast<double>(r.steps)); });
}

void add_cost(FieldTable& table) {
    table.add(
        "linear_us_per_token", "decode kernels of linear attention, time per decoded token",
        [](const RunResult& r) { return ratio(to_us(r.linear_time), static_cast<double>(r.linear_tokens)); });
    table.add("busy_us_per_token", "step time per decoded token",
              [](const RunResult& r) { return ratio(to_us(r.busy), static_cast<double>(r.linear_tokens)); });
    table.add("state_buffer_bytes_per_token", "state and buffer bytes moved per decoded token",
              [](const RunResult& r) {
                  return ratio(state_and_buffer_bytes(r.bytes), static_cast<double>(r.linear_tokens));
              });
    table.add("flushes", "buffers folded into their states", [](const RunResult& r) { return r.flushes; });
    table.add("flush_share", "share of busy time by which flushes made steps longer",
              [](const RunResult& r) { return ratio(to_seconds(r.flush_time), to_seconds(r.busy)); });
    table.add("bytes.total", "bytes moved", [](const RunResult& r) { return total_bytes(r.bytes); });
    for (std::size_t i = 0; i < kOwnerNames.size(); ++i) {
        table.add(fmt::format("bytes.{}", kOwnerNames[i]), fmt::format("bytes moved: {}", kOwnerNames[i]),
                  [i](const RunResult& r) { return r.bytes[i].value(); });
    }
    for (std::size_t i = 0; i < kSourceNames.size(); ++i) {
        table.add(
            fmt::format("share_{}", kSourceNames[i]), fmt::format("share of busy time: {}", kSourceNames[i]),
            [i](const RunResult& r) { return ratio(to_seconds(r.time_by_source[i]), to_seconds(r.busy)); });
    }
}

void add_prefix_cache(FieldTable& table) {
    const auto count = [&](std::string name, std::string help, std::int64_t PrefixCounts::*member) {
        table.add("prefix_cache." + std::move(name), std::move(help), [member](const RunResult& r) {
            return r.prefix_cache ? FieldValue((*r.prefix_cache).*member) : FieldValue();
        });
    };
    count("asked_tokens", "tokens to prefill at admission, after a preemption too",
          &PrefixCounts::asked_tokens);
    count("hit_tokens", "of these, found in the prefix cache", &PrefixCounts::hit_tokens);
    table.add("prefix_cache.hit_rate", "hit tokens / asked tokens", [](const RunResult& r) {
        if (!r.prefix_cache) return FieldValue();
        return ratio(static_cast<double>(r.prefix_cache->hit_tokens),
                     static_cast<double>(r.prefix_cache->asked_tokens));
    });
    count("hits", "admissions that found any: each restores a state", &PrefixCounts::hits);
    count("snapshots", "copies of states taken for later prompts", &PrefixCounts::snapshots);
    count("evicted_pages", "KV pages that the cache let go", &PrefixCounts::evicted_pages);
    count("evicted_snapshots", "snapshots that the cache let go", &PrefixCounts::evicted_snapshots);
}

std::vector<ResultField> make_fields() {
    FieldTable table;
    add_requests(table);
    add_latencies(table);
    add_stability(table);
    add_throughput(table);
    add_prefix_cache(table);
    add_cost(table);
    return table.take();
}

struct CellText {
    std::string operator()(std::monostate) const { return {}; }
    std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(std::string_view value) const { return std::string(value); }
};

struct JsonValue {
    nlohmann::json operator()(std::monostate) const { return nullptr; }
    nlohmann::json operator()(std::int64_t value) const { return value; }
    nlohmann::json operator()(double value) const { return value; }
    nlohmann::json operator()(std::string_view value) const { return value; }
};

}  // namespace

std::span<const ResultField> result_fields() {
    static const std::vector<ResultField> fields = make_fields();
    return fields;
}

std::vector<std::string> csv_header() {
    std::vector<std::string> names;
    for (const ResultField& field : result_fields()) {
        names.push_back(field.name);
        std::replace(names.back().begin(), names.back().end(), '.', '_');
    }
    return names;
}

std::vector<std::string> csv_row(const RunResult& result) {
    std::vector<std::string> cells;
    for (const ResultField& field : result_fields())
        cells.push_back(std::visit(CellText{}, field.get(result)));
    return cells;
}

nlohmann::json to_json(const RunResult& result) {
    nlohmann::json json = nlohmann::json::object();
    for (const ResultField& field : result_fields()) {
        std::string pointer = "/" + field.name;
        std::replace(pointer.begin(), pointer.end(), '.', '/');
        json[nlohmann::json::json_pointer(pointer)] = std::visit(JsonValue{}, field.get(result));
    }
    return json;
}

}  // namespace kvsim
