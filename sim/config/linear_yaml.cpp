// `linear` of an experiment: how the linear layers are served.
#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "sim/base/text.hpp"
#include "sim/config/schema.hpp"
#include "sim/config/supported.hpp"
#include "sim/policies/flush.hpp"

namespace kvsim {

namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::array<std::string_view, 3> kFormChoices{name(Form::kRecurrent), name(Form::kBuffered), kAuto};
constexpr std::string_view kAtPreemption = "at_preemption";
constexpr IntRange kBufferLength{1, 128};  // 128: the largest ring of the kernels

// The policies that bound the flushes of a step.
bool has_bound(std::string_view policy) {
    return policy == "deferred" || policy == "deferred_under_load";
}

// `flush: aligned` or `flush: {policy: deferred, most_per_step: 4}`.
FlushSpec read_flush(const YamlCursor& value) {
    FlushSpec flush;
    std::vector<std::string_view> names;
    for (const FlushPolicyEntry& entry : flush_policies()) names.push_back(entry.name);
    if (!value.is_map()) {
        if (value.is_word(kAtPreemption)) {
            value.mistake(fmt::format(
                "expected one of {}, got {}: beside any of them it is a key of engine.prefix_cache, where "
                "a row that gives way leaves its state",
                join(names), kAtPreemption));
            return flush;
        }
        if (const auto index = value.choice_index(names)) flush.policy = names[*index];
        return flush;
    }
    const YamlCursor policy = value.at("policy");
    const YamlCursor most = value.find("most_per_step");
    if (const auto index = policy.choice_index(names)) flush.policy = names[*index];
    flush.most_per_step = most.small_integer({1, 1 << 20});
    if (most.present() && !has_bound(flush.policy))
        most.mistake(fmt::format("the policy `{}` does not bound the flushes of a step", flush.policy));
    return flush;
}

StateFormat read_state_dtype(const YamlCursor& value, StateFormat model) {
    if (const auto index = value.choice_index(kSupportedStateFormats))
        return *enum_from_name<StateFormat>(kStateFormatNames, kSupportedStateFormats[*index]);
    if (!value.present() &&
        std::ranges::find(kSupportedStateFormats, name(model)) == kSupportedStateFormats.end()) {
        value.mistake(fmt::format("expected one of {}, got the model's own, {}", join(kSupportedStateFormats),
                                  name(model)));
    }
    return model;
}

// m, and the ring that holds it.
void read_buffer(const YamlCursor& map, LinearServing& linear) {
    const YamlCursor length = map.at("buffer_length");
    const YamlCursor ring = map.find("ring");
    linear.choose_length = length.is_word(kAuto);
    linear.ring = ring.small_integer(kBufferLength, linear.choose_length ? 1 : 0);
    if (linear.choose_length) {
        if (!ring.present())
            length.mistake("auto needs linear.ring, the longest buffer, as in --set linear.ring=32");
        linear.buffer_length = linear.ring;
        return;
    }
    linear.buffer_length = length.small_integer(kBufferLength, 1);
    if (ring.present() && linear.ring > 0 && linear.ring < linear.buffer_length) {
        ring.mistake(
            fmt::format("expected at least buffer_length ({}), got {}", linear.buffer_length, linear.ring));
    }
}

// What buffers would take is a mistake where nothing is buffered, unless `--set linear.form=recurrent` takes
// the place of the whole choice that a file made.
void refuse_buffer(const YamlCursor& map, const YamlCursor& form) {
    const bool form_overridden = form.present() && form.place().line == 0;
    const YamlCursor length = map.find("buffer_length");
    if (length.present() && !(form_overridden && length.place().line != 0)) {
        const int m = length.small_integer(kBufferLength, 1);
        if (m != 1) {
            length.mistake(fmt::format("expected 1, because the form recurrent buffers nothing, got {}", m));
        }
    }
    for (const char* key : {"ring", "flush", "records"}) {
        const YamlCursor other = map.find(key);
        if (other.present() && !(form_overridden && other.place().line != 0))
            other.mistake("the form recurrent buffers nothing");
    }
}

}  // namespace

LinearServing read_linear(const YamlCursor& map, StateFormat state) {
    LinearServing linear;
    const YamlCursor form = map.find("form");
    const bool direct = form.is_word(name(Form::kDirect));
    if (direct)
        form.mistake(
            fmt::format("expected one of {}, got direct, which has no kernel yet", join(kFormChoices)));
    const std::optional<std::size_t> index = direct ? std::nullopt : form.choice_index(kFormChoices);
    linear.choose_form = index && kFormChoices[*index] == kAuto;
    if (index && *index > 0) linear.form = Form::kBuffered;
    linear.state = read_state_dtype(map.find("state_dtype"), state);
    if (linear.form == Form::kRecurrent) {
        refuse_buffer(map, form);
        return linear;
    }
    read_buffer(map, linear);
    if (const YamlCursor flush = map.find("flush"); flush.present()) linear.flush = read_flush(flush);
    linear.records = map.find("records").choice<RecordFormat>(kSupportedRecordFormats);
    // A ring of one record is flushed at every token: the recurrent form.
    if (linear.buffer_length == 1 && linear.ring <= 1) linear = {.state = linear.state};
    return linear;
}

void write_linear(YAML::Emitter& out, const LinearServing& linear) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::Flow << YAML::BeginMap;
    pair("form", std::string(linear.choose_form ? kAuto : name(linear.form)));
    if (linear.choose_length) {
        pair("buffer_length", std::string(kAuto));
    } else {
        pair("buffer_length", linear.buffer_length);
    }
    if (linear.ring > 0) pair("ring", linear.ring);
    pair("state_dtype", std::string(name(linear.state)));
    if (linear.form == Form::kBuffered) {
        pair("records", std::string(name(linear.records)));
        out << YAML::Key << "flush" << YAML::Value << YAML::BeginMap;
        pair("policy", linear.flush.policy);
        if (linear.flush.most_per_step > 0) pair("most_per_step", linear.flush.most_per_step);
        out << YAML::EndMap;
    }
    out << YAML::EndMap;
}

}  // namespace kvsim
