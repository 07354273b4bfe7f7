// `linear` of an experiment: forms, buffers, flush policies and formats.
#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

LinearServing linear_of(const std::string& text) {
    return load_experiment(kSteady, {{"linear", text}}).linear;
}

std::string error_of(const std::vector<Override>& overrides) {
    return config_error([&] { load_experiment(kSteady, overrides); });
}

TEST_CASE("state formats go by their names, not by their place in a list") {
    CHECK(linear_of("{state_dtype: split}").state == StateFormat::kSplit);
    CHECK(linear_of("{state_dtype: bf16}").state == StateFormat::kBf16);
    CHECK(linear_of("{}").state == StateFormat::kFp32);
}

TEST_CASE("a flush policy is a word, or a map with its bound") {
    CHECK(linear_of("{form: buffered, buffer_length: 8}").flush == FlushSpec{});
    CHECK(linear_of("{form: buffered, buffer_length: 8, flush: aligned}").flush.policy == "aligned");
    const FlushSpec deferred =
        linear_of("{form: buffered, buffer_length: 8, ring: 12, flush: {policy: deferred, most_per_step: 4}}")
            .flush;
    CHECK(deferred.policy == "deferred");
    CHECK(deferred.most_per_step == 4);
    CHECK_THAT(error_of({{"linear.flush", "aligne"}}), ContainsSubstring("(did you mean `aligned`?)"));
    CHECK_THAT(error_of({{"linear.flush", "{policy: aligned, most_per_step: 4}"}}),
               ContainsSubstring("linear.flush.most_per_step: the policy `aligned` does not bound"));
    CHECK_THAT(error_of({{"linear.flush", "{policy: deferred, most_per_step: 0}"}}),
               ContainsSubstring("from 1"));
    CHECK_THAT(error_of({{"linear.flush", "{most_per_step: 4}"}}), ContainsSubstring("missing required key"));
}

TEST_CASE("rings hold the buffer, and are needed to choose a length") {
    const LinearServing given = linear_of("{form: buffered, buffer_length: 8, ring: 12}");
    CHECK(given.buffer_length == 8);
    CHECK(given.ring == 12);
    CHECK_THAT(error_of({{"linear", "{form: buffered, buffer_length: 8, ring: 7}"}}),
               ContainsSubstring("linear.ring: expected at least buffer_length (8), got 7"));
    const LinearServing chosen = linear_of("{form: auto, buffer_length: auto, ring: 32}");
    CHECK(chosen.choose_form);
    CHECK(chosen.choose_length);
    CHECK(chosen.form == Form::kBuffered);
    CHECK(chosen.buffer_length == 32);
    CHECK_THAT(
        error_of({{"linear", "{form: buffered, buffer_length: auto}"}}),
        ContainsSubstring(
            "linear.buffer_length: auto needs linear.ring, the longest buffer, as in --set linear.ring=32"));
}

TEST_CASE("a flush at preemption is asked for where its snapshot is kept") {
    CHECK_THAT(error_of({{"linear.flush", "at_preemption"}}),
               ContainsSubstring("got at_preemption: beside any of them it is a key of engine.prefix_cache"));
}

TEST_CASE("what buffers would take is refused where nothing is buffered") {
    CHECK_THAT(error_of({{"linear", "{form: recurrent, flush: aligned}"}}),
               ContainsSubstring("linear.flush: the form recurrent buffers nothing"));
    CHECK_THAT(error_of({{"linear.form", "recurrent"}, {"linear.ring", "9"}}),
               ContainsSubstring("--set linear.ring=9: linear.ring: the form recurrent buffers nothing"));
    // The file's own choice gives way as a whole.
    CHECK(error_of({{"linear.form", "recurrent"}}).empty());
}

TEST_CASE("formats of records, bf16 where none is named") {
    CHECK(linear_of("{form: buffered, buffer_length: 8}").records == RecordFormat::kBf16);
    CHECK(linear_of("{form: buffered, buffer_length: 8, records: bf16}").records == RecordFormat::kBf16);
    CHECK(linear_of("{form: buffered, buffer_length: 8, records: fp32_u}").records == RecordFormat::kFp32U);
    CHECK_THAT(error_of({{"linear.records", "fp32"}}),
               ContainsSubstring("linear.records: expected one of bf16, fp32_u, got `fp32`"));
}

TEST_CASE("linear layers read back as they were written") {
    for (const char* text :
         {"{}", "{form: buffered, buffer_length: 8, state_dtype: split}", "{form: auto, buffer_length: 16}",
          "{form: auto, buffer_length: auto, ring: 32, flush: staggered}",
          "{form: buffered, buffer_length: 8, ring: 12, flush: {policy: deferred, most_per_step: 4}}"}) {
        INFO(text);
        const Experiment e = load_experiment(kSteady, {{"linear", text}});
        const TemporaryFolder folder;
        const Experiment back = load_experiment(folder.write("resolved.yaml", to_yaml(e)));
        CHECK(to_yaml(back) == to_yaml(e));
        CHECK(back.linear.form == e.linear.form);
        CHECK(back.linear.buffer_length == e.linear.buffer_length);
        CHECK(back.linear.ring == e.linear.ring);
        CHECK(back.linear.state == e.linear.state);
        CHECK(back.linear.flush == e.linear.flush);
        CHECK(back.linear.choose_form == e.linear.choose_form);
        CHECK(back.linear.choose_length == e.linear.choose_length);
    }
}

}  // namespace
}  // namespace kvsim
