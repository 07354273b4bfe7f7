// The table of forms: what each makes, and what is refused.
#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/policies/form.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("recurrent rows have no buffer, buffered rows flush") {
    const DecodeForm recurrent = make_decode_form({Form::kRecurrent, 16, StateFormat::kFp32});
    CHECK(recurrent.form == Form::kRecurrent);
    CHECK(recurrent.flush == nullptr);
    const DecodeForm buffered = make_decode_form({Form::kBuffered, 2, StateFormat::kFp32});
    CHECK(buffered.form == Form::kBuffered);
    REQUIRE(buffered.flush != nullptr);
    buffered.flush->join(0);
    for (const std::int64_t step : {0, 1}) {
        StepShape shape;
        buffered.flush->step(step, {}, shape);
        CHECK(shape[Form::kBuffered].flushes == step);
    }
}

TEST_CASE("a buffer of one token is the recurrent form") {
    const LinearServing linear{Form::kBuffered, 1, StateFormat::kFp32};
    CHECK(served_form(linear) == Form::kRecurrent);
    const DecodeForm one = make_decode_form(linear);
    CHECK(one.form == Form::kRecurrent);
    CHECK(one.flush == nullptr);
}

TEST_CASE("the flush policy is the one that is named, with the ring that is served") {
    LinearServing linear{Form::kBuffered, 2, StateFormat::kFp32};
    linear.flush = {.policy = "deferred", .most_per_step = 1};
    linear.ring = 3;
    const DecodeForm form = make_decode_form(linear);
    for (int i = 0; i < 3; ++i) form.flush->join(0);
    // One of three flushes when all are due, the others when their rings are full.
    for (const std::int64_t flushes : {0, 1, 2}) {
        StepShape shape;
        form.flush->step(flushes, {}, shape);
        CHECK(shape[Form::kBuffered].flushes == flushes);
    }
    linear.flush.policy = "sometimes";
    CHECK_THROWS_AS(make_decode_form(linear), ConfigError);
}

TEST_CASE("a form without a policy is the user's mistake, and the choices are named") {
    CHECK_THROWS_WITH(
        make_decode_form({Form::kDirect, 16, StateFormat::kFp32}),
        "linear.form: expected one of recurrent, buffered, auto, got direct, which has no kernel yet");
    CHECK_THROWS_AS(make_decode_form({Form::kVerifyStored, 16, StateFormat::kFp32}), ConfigError);
}

TEST_CASE("names of forms are distinct and explained") {
    std::vector<std::string_view> names;
    for (const FormPolicyEntry& entry : form_policies()) {
        CHECK_FALSE(entry.help.empty());
        names.push_back(entry.name);
    }
    std::ranges::sort(names);
    CHECK(std::ranges::adjacent_find(names) == names.end());
}

}  // namespace
}  // namespace kvsim
