#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <variant>
#include <vector>

#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

namespace {

// A list of words of a table, each at most once.
template <class Enum, std::size_t N>
std::vector<Enum> read_words(const YamlCursor& list, const std::array<std::string_view, N>& names) {
    std::vector<Enum> words;
    if (!list.present()) return words;
    for (const YamlCursor& item : list.items()) {
        const std::optional<std::size_t> index = item.choice_index(names);
        if (!index) continue;
        const auto word = static_cast<Enum>(*index);
        if (std::ranges::find(words, word) != words.end())
            item.mistake(fmt::format("{} stands here twice", names[*index]));
        words.push_back(word);
    }
    return words;
}

EngineSteps read_steps(const YamlCursor& map) {
    EngineSteps steps;
    if (!map.present()) return steps;
    steps.launch_gap = map.at("launch_gap").time(Sign::kNonNegative);
    steps.host_gap = map.at("host_gap").time(Sign::kNonNegative);
    for (const Fusion f : read_words<Fusion>(map.at("fused"), kFusionNames))
        steps.fused[static_cast<std::size_t>(f)] = true;
    for (const Overlap o : read_words<Overlap>(map.at("second_stream"), kOverlapNames))
        steps.overlapped[static_cast<std::size_t>(o)] = true;
    steps.overlap_tokens =
        map.find("second_stream_tokens").integer({.min = 0}, std::numeric_limits<std::int32_t>::max());
    steps.sampling = map.find("sampling").choice<Sampling>(kSamplingNames, Sampling::kGreedy);
    steps.linear_kernels =
        map.find("linear_kernels").choice<LinearKernels>(kLinearKernelsNames, LinearKernels::kOwn);
    if (const YamlCursor unfused = map.find("unfused"); unfused.present()) {
        for (const auto& [model, fusions] : unfused.entries())
            steps.unfused.emplace_back(model, read_words<Fusion>(fusions, kFusionNames));
    }
    return steps;
}

std::optional<PrefixCacheSpec> read_prefix_cache(const YamlCursor& map, const MemoryPools& pools) {
    if (!map.present()) return std::nullopt;
    PrefixCacheSpec spec;
    spec.snapshot_tokens = map.at("snapshot_tokens").small_integer({1, 1 << 20}, spec.snapshot_tokens);
    int most_slots = 1;
    if (const auto* split = std::get_if<SplitPools>(&pools)) {
        most_slots = split->slots_per_request;
        if (split->slots == SlotCount::kRunning)
            map.mistake("expected memory.slots: share, because one slot per running request leaves none");
    }
    const auto* paged = std::get_if<PagedPool>(&pools);
    if (paged != nullptr && !paged->aligned_prefix_cache)
        map.mistake("expected memory.aligned_prefix_cache: true, because snapshots take blocks of the pool");
    spec.slots_in_use = map.find("slots_in_use").small_integer({1, most_slots}, spec.slots_in_use);
    spec.at_preemption = map.find("at_preemption").boolean(spec.at_preemption);
    return spec;
}

template <class Flags, std::size_t N>
void write_words(YAML::Emitter& out, const char* key, const Flags& flags,
                 const std::array<std::string_view, N>& names) {
    out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
    for (std::size_t i = 0; i < N; ++i) {
        if (flags(i)) out << std::string(names[i]);
    }
    out << YAML::EndSeq;
}

void write_steps(YAML::Emitter& out, const EngineSteps& steps) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::BeginMap;
    pair("launch_gap", to_text(steps.launch_gap));
    pair("host_gap", to_text(steps.host_gap));
    write_words(
        out, "fused", [&](std::size_t i) { return steps.fused[i]; }, kFusionNames);
    write_words(
        out, "second_stream", [&](std::size_t i) { return steps.overlapped[i]; }, kOverlapNames);
    pair("second_stream_tokens", steps.overlap_tokens);
    pair("sampling", std::string(kSamplingNames[static_cast<std::size_t>(steps.sampling)]));
    pair("linear_kernels", std::string(kLinearKernelsNames[static_cast<std::size_t>(steps.linear_kernels)]));
    if (!steps.unfused.empty()) {
        out << YAML::Key << "unfused" << YAML::Value << YAML::BeginMap;
        for (const auto& [model, fusions] : steps.unfused) {
            const auto unfused = [&fusions = fusions](std::size_t i) {
                return std::ranges::find(fusions, static_cast<Fusion>(i)) != fusions.end();
            };
            write_words(out, model.c_str(), unfused, kFusionNames);
        }
        out << YAML::EndMap;
    }
    out << YAML::EndMap;
}

}  // namespace

EngineSpec read_engine(const YamlCursor& map) {
    EngineSpec engine;
    engine.name = read_name(map.at("name"));
    engine.max_running_requests = map.at("max_running_requests").small_integer({1, 1 << 20});
    engine.chunked_prefill_tokens = map.at("chunked_prefill_tokens").small_integer({1, 1 << 24});
    engine.scheduler = read_scheduler(map.find("scheduler"));
    engine.memory = read_engine_memory(map.at("memory"));
    engine.steps = read_steps(map.find("steps"));
    engine.prefix_cache = read_prefix_cache(map.find("prefix_cache"), engine.memory.pools);
    return engine;
}

void write_engine(YAML::Emitter& out, const EngineSpec& engine) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::BeginMap;
    pair("name", engine.name);
    pair("max_running_requests", engine.max_running_requests);
    pair("chunked_prefill_tokens", engine.chunked_prefill_tokens);
    write_scheduler(out << YAML::Key << "scheduler" << YAML::Value, engine.scheduler);
    write_engine_memory(out << YAML::Key << "memory" << YAML::Value, engine.memory);
    write_steps(out << YAML::Key << "steps" << YAML::Value, engine.steps);
    if (engine.prefix_cache) {
        out << YAML::Key << "prefix_cache" << YAML::Value << YAML::BeginMap;
        pair("snapshot_tokens", engine.prefix_cache->snapshot_tokens);
        pair("slots_in_use", engine.prefix_cache->slots_in_use);
        pair("at_preemption", engine.prefix_cache->at_preemption);
        out << YAML::EndMap;
    }
    out << YAML::EndMap;
}

}  // namespace kvsim
