#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "sim/base/text.hpp"
#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"
#include "sim/config/supported.hpp"

namespace kvsim {

namespace {

// What kernels and the cost model can serve.
constexpr std::array<std::string_view, 2> kSupportedFormNames{name(Form::kRecurrent), name(Form::kBuffered)};
constexpr IntRange kBufferLength{1, 128};  // 128: the largest ring of the kernels

}  // namespace

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
            const auto unfused = [&](std::size_t i) {
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
    engine.memory = read_engine_memory(map.at("memory"));
    engine.steps = read_steps(map.find("steps"));
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
    write_engine_memory(out << YAML::Key << "memory" << YAML::Value, engine.memory);
    write_steps(out << YAML::Key << "steps" << YAML::Value, engine.steps);
    out << YAML::EndMap;
}

LinearServing read_linear(const YamlCursor& map, StateFormat state) {
    LinearServing linear;
    const YamlCursor form = map.find("form");
    if (const auto index = form.choice_index(kSupportedFormNames)) linear.form = kSupportedForms[*index];
    const YamlCursor dtype = map.find("state_dtype");
    linear.state = dtype.choice<StateFormat>(kSupportedStateFormats, state);
    if (std::ranges::find(kSupportedStateFormats, name(linear.state)) == kSupportedStateFormats.end()) {
        dtype.mistake(fmt::format("expected one of {}, got the model's own, {}", join(kSupportedStateFormats),
                                  name(linear.state)));
    }

    const bool recurrent = linear.form == Form::kRecurrent;
    const YamlCursor length = recurrent ? map.find("buffer_length") : map.at("buffer_length");
    linear.buffer_length = length.small_integer(kBufferLength, 1);
    if (recurrent && linear.buffer_length > 1) {
        // `--set linear.form=recurrent` takes the place of the whole choice that a file made.
        const bool form_overridden = form.present() && form.place().line == 0;
        if (!form_overridden || length.place().line == 0) {
            length.mistake(fmt::format("expected 1, because the form recurrent buffers nothing, got {}",
                                       linear.buffer_length));
        }
        linear.buffer_length = 1;
    }
    // A ring of one record is flushed at every token: the recurrent form.
    if (linear.buffer_length == 1) linear.form = Form::kRecurrent;
    return linear;
}

void write_linear(YAML::Emitter& out, const LinearServing& linear) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::Flow << YAML::BeginMap;
    pair("form", std::string(name(linear.form)));
    pair("buffer_length", linear.buffer_length);
    pair("state_dtype", std::string(name(linear.state)));
    out << YAML::EndMap;
}

}  // namespace kvsim
