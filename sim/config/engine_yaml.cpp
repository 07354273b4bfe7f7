#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>

#include "sim/base/text.hpp"
#include "sim/config/schema.hpp"
#include "sim/config/supported.hpp"

namespace kvsim {

namespace {

// What kernels and the cost model can serve.
constexpr std::array<std::string_view, 2> kSupportedFormNames{name(Form::kRecurrent), name(Form::kBuffered)};
constexpr IntRange kBufferLength{1, 128};  // 128: the largest ring of the kernels

}  // namespace

EngineSpec read_engine(const YamlCursor& map) {
    EngineSpec engine;
    engine.name = read_name(map.at("name"));
    engine.mem_fraction_static =
        map.at("mem_fraction_static").real({.min = 0.0, .max = 1.0, .above_min = true});
    engine.state_memory_ratio =
        map.at("state_memory_ratio").real({.min = 0.0, .max = 1e6, .above_min = true});
    engine.state_slots_per_request = map.at("state_slots_per_request").small_integer({1, 1024});
    engine.max_running_requests = map.at("max_running_requests").small_integer({1, 1 << 20});
    engine.chunked_prefill_tokens = map.at("chunked_prefill_tokens").small_integer({1, 1 << 24});
    return engine;
}

void write_engine(YAML::Emitter& out, const EngineSpec& engine) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::BeginMap;
    pair("name", engine.name);
    pair("mem_fraction_static", shortest(engine.mem_fraction_static));
    pair("state_memory_ratio", shortest(engine.state_memory_ratio));
    pair("state_slots_per_request", engine.state_slots_per_request);
    pair("max_running_requests", engine.max_running_requests);
    pair("chunked_prefill_tokens", engine.chunked_prefill_tokens);
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
