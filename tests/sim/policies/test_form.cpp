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
    const DecodeForm one = make_decode_form({Form::kBuffered, 1, StateFormat::kFp32});
    CHECK(one.form == Form::kRecurrent);
    CHECK(one.flush == nullptr);
}

TEST_CASE("a form without a policy is the user's mistake, and the choices are named") {
    CHECK_THROWS_WITH(make_decode_form({Form::kDirect, 16, StateFormat::kFp32}),
                      "linear.form: expected one of recurrent, buffered, got direct");
    CHECK_THROWS_AS(make_decode_form({Form::kVerifyStored, 16, StateFormat::kFp32}), ConfigError);
}

TEST_CASE("names in the tables are distinct and explained") {
    CHECK(form_policies().size() == 2);
    CHECK(form_policies()[0].name != form_policies()[1].name);
    for (const FormPolicyEntry& entry : form_policies()) CHECK_FALSE(entry.help.empty());
    REQUIRE(flush_policies().size() == 1);
    CHECK(flush_policies()[0].name == "fixed_length");
    CHECK_FALSE(flush_policies()[0].help.empty());
}

}  // namespace
}  // namespace kvsim
