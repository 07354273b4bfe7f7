#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <filesystem>

#include "sim/base/check.hpp"
#include "sim/config/locate.hpp"
#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

namespace {

enum class WorkloadKind : std::uint8_t { kSteady, kPoisson, kGamma, kClosed, kTrace };
constexpr std::array<std::string_view, 5> kWorkloadKindNames{"steady", "poisson", "gamma", "closed", "trace"};

// Bounds that keep sums over a batch within 64 bits.
constexpr IntRange kTokens{1, 1 << 30};
constexpr IntRange kBatch{1, 1 << 20};
constexpr IntRange kCount{1, 1'000'000'000};

std::vector<double> read_quantiles(const YamlCursor& list) {
    std::vector<double> tokens;
    for (const YamlCursor& item : list.items(2)) {
        const double last = tokens.empty() ? 1.0 : tokens.back();
        tokens.push_back(item.real({.min = 1.0, .max = static_cast<double>(kTokens.max)}, last));
        if (tokens.back() < last) {
            item.mistake(
                fmt::format("expected quantiles that never fall, got {} after {}", tokens.back(), last));
        }
    }
    return tokens;
}

LengthDistribution read_lengths(const YamlCursor& map) {
    LengthDistribution lengths;
    const YamlCursor constant = map.find("constant");
    const YamlCursor log_normal = map.find("log_normal");
    const YamlCursor quantiles = map.find("quantiles");
    if (!map.is_map()) return lengths;
    if (constant.present() + log_normal.present() + quantiles.present() != 1) {
        map.mistake("expected exactly one of constant, log_normal, quantiles");
        map.ignore_rest();
        return lengths;
    }
    if (constant.present()) {
        lengths.value = lengths.min = lengths.max = constant.integer(kTokens, 1);
        return lengths;
    }
    if (log_normal.present()) {
        lengths.kind = LengthDistribution::Kind::kLogNormal;
        lengths.median =
            log_normal.at("median").real({.min = 1.0, .max = static_cast<double>(kTokens.max)}, 1.0);
        lengths.sigma = log_normal.at("sigma").real({.min = 0.0, .max = 100.0});
    } else {
        lengths.kind = LengthDistribution::Kind::kEmpirical;
        lengths.quantile_tokens = read_quantiles(quantiles);
    }
    lengths.min = map.find("min").integer(kTokens, lengths.min);
    const YamlCursor max = map.find("max");
    lengths.max = max.integer(kTokens, std::max(lengths.min, lengths.max));
    if (lengths.max < lengths.min) {
        max.mistake(fmt::format("expected at least min ({}), got {}", lengths.min, lengths.max));
    }
    return lengths;
}

void write_lengths(YAML::Emitter& out, const LengthDistribution& lengths) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::Flow << YAML::BeginMap;
    switch (lengths.kind) {
        case LengthDistribution::Kind::kConstant:
            pair("constant", lengths.value);
            break;
        case LengthDistribution::Kind::kLogNormal:
            out << YAML::Key << "log_normal" << YAML::Value << YAML::BeginMap;
            pair("median", shortest(lengths.median));
            pair("sigma", shortest(lengths.sigma));
            out << YAML::EndMap;
            break;
        case LengthDistribution::Kind::kEmpirical:
            out << YAML::Key << "quantiles" << YAML::Value << YAML::BeginSeq;
            for (const double tokens : lengths.quantile_tokens) out << shortest(tokens);
            out << YAML::EndSeq;
            break;
    }
    if (lengths.kind != LengthDistribution::Kind::kConstant) {
        pair("min", lengths.min);
        pair("max", lengths.max);
    }
    out << YAML::EndMap;
}

void write_declared(YAML::Emitter& out, std::int64_t declared) {
    out << YAML::Key << "declared" << YAML::Value;
    if (declared == 0) {
        out << true;
    } else {
        out << declared;
    }
}

// `declared: true`: each request declares the length that it has; a number: max_tokens of all.
std::int64_t read_declared(const YamlCursor& value) {
    return value.is_word("true") ? 0 : value.integer(kTokens, 0);
}

// The requests of kinds that draw them.
SyntheticWorkload read_synthetic(const YamlCursor& map, WorkloadKind kind) {
    SyntheticWorkload synthetic;
    if (kind == WorkloadKind::kClosed) {
        synthetic.concurrency = map.at("concurrency").integer(kBatch, 1);
    } else {
        const YamlCursor rate = map.at("rate");
        synthetic.rate = rate.frequency();
        // Slower than one in thirty years, gaps leave the range of time.
        constexpr double kSlowest = 1e-9;
        if (synthetic.rate.value() > 0.0 && synthetic.rate.value() < kSlowest) {
            rate.mistake(fmt::format("expected at least {} /s, got `{}`", kSlowest, to_text(synthetic.rate)));
        }
    }
    if (kind == WorkloadKind::kGamma)
        synthetic.burstiness = map.at("burstiness").real({.min = 0.01, .max = 1000.0}, 1.0);
    synthetic.requests = map.at("requests").integer(kCount);
    synthetic.prompt = read_lengths(map.at("prompt_tokens"));
    synthetic.output = read_lengths(map.at("output_tokens"));
    synthetic.declared = read_declared(map.find("declared"));
    return synthetic;
}

TraceWorkload read_trace_file(const YamlCursor& map, const YamlCursor& value) {
    TraceWorkload trace;
    trace.speed = map.find("speed").real({.min = 1e-6, .max = 1e6}, 1.0);
    if (const YamlCursor limit = map.find("limit"); limit.present()) trace.limit = limit.integer(kCount, 1);
    trace.spread = map.find("spread").boolean();
    trace.declared = read_declared(map.find("declared"));
    const std::string text = value.string();
    if (text.empty()) return trace;
    trace.path = resolve_path(text, value.place());
    std::error_code ignored;
    if (!std::filesystem::exists(trace.path, ignored))
        value.mistake(fmt::format("no such file: {}", trace.path));
    return trace;
}

// What a file says beside its trace is another scenario, at rest; what an override says there would do
// nothing.
void refuse_replaced(const YamlCursor& map, const YamlCursor& trace) {
    for (const char* key : {"batch", "context", "steps", "rate", "burstiness", "concurrency", "requests",
                            "prompt_tokens", "output_tokens"}) {
        const YamlCursor other = map.find(key);
        if (!other.present()) continue;
        const std::string& file = other.place().file;
        if (file.starts_with("--set ") && file != trace.place().file)
            other.mistake("the trace takes the place of this key");
    }
}

}  // namespace

WorkloadSpec read_workload(const YamlCursor& map) {
    WorkloadSpec workload;
    const std::optional<std::size_t> index = map.at("kind").choice_index(kWorkloadKindNames);
    if (!index) {
        map.ignore_rest();
        return workload;
    }
    const auto kind = static_cast<WorkloadKind>(*index);
    switch (kind) {
        case WorkloadKind::kSteady: {
            SteadyWorkload steady;
            steady.batch = map.at("batch").integer(kBatch);
            steady.context = map.at("context").integer(kTokens);
            steady.steps = map.at("steps").integer(kCount);
            workload = steady;
            break;
        }
        case WorkloadKind::kPoisson:
        case WorkloadKind::kGamma:
        case WorkloadKind::kClosed:
            workload = read_synthetic(map, kind);
            break;
        case WorkloadKind::kTrace:
            break;
    }
    // A trace takes the place of the arrivals and lengths above, which must still be sound.
    const YamlCursor trace = kind == WorkloadKind::kTrace ? map.at("trace") : map.find("trace");
    if (trace.present()) {
        workload = read_trace_file(map, trace);
        refuse_replaced(map, trace);
    }
    return workload;
}

void write_workload(YAML::Emitter& out, const WorkloadSpec& workload) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::BeginMap;
    if (const auto* steady = std::get_if<SteadyWorkload>(&workload)) {
        pair("kind", "steady");
        pair("batch", steady->batch);
        pair("context", steady->context);
        pair("steps", steady->steps);
    } else if (const auto* synthetic = std::get_if<SyntheticWorkload>(&workload)) {
        if (synthetic->concurrency > 0) {
            pair("kind", "closed");
            pair("concurrency", synthetic->concurrency);
        } else {
            pair("kind", synthetic->burstiness == 1.0 ? "poisson" : "gamma");
            pair("rate", to_text(synthetic->rate));
            if (synthetic->burstiness != 1.0) pair("burstiness", shortest(synthetic->burstiness));
        }
        pair("requests", synthetic->requests);
        out << YAML::Key << "prompt_tokens" << YAML::Value;
        write_lengths(out, synthetic->prompt);
        out << YAML::Key << "output_tokens" << YAML::Value;
        write_lengths(out, synthetic->output);
        write_declared(out, synthetic->declared);
    } else {
        const auto& trace = std::get<TraceWorkload>(workload);
        pair("kind", "trace");
        pair("trace", trace.path);
        pair("speed", shortest(trace.speed));
        if (trace.limit) pair("limit", *trace.limit);
        pair("spread", trace.spread);
        write_declared(out, trace.declared);
    }
    out << YAML::EndMap;
}

}  // namespace kvsim
