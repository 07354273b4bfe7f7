// How mistakes and broken invariants read.
#include "sim/base/error.hpp"

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("a mistake says its place as far as it is known") {
    CHECK(format_mistake({{"f.yaml", 3, 7}, "linear.form", "wrong"}) == "f.yaml:3:7: linear.form: wrong");
    CHECK(format_mistake({{"t.csv", 12, 0}, "", "wrong"}) == "t.csv:12: wrong");
    CHECK(format_mistake({{"f.yaml", 0, 0}, "", "no such file"}) == "f.yaml: no such file");
    CHECK(format_mistake({{"", 0, 0}, "", "wrong"}) == "wrong");
}

TEST_CASE("a ConfigError holds all mistakes, a line each") {
    const ConfigError error(std::vector<Mistake>{{{"a", 1, 1}, "x", "one"}, {{"b", 2, 2}, "y", "two"}});
    CHECK(std::string(error.what()) == "a:1:1: x: one\nb:2:2: y: two");
    CHECK(error.mistakes().size() == 2);
    CHECK_THROWS_AS(ConfigError(std::vector<Mistake>{}), InvariantError);
    CHECK_THROWS_AS(throw_mistake({"f", 1, 2}, "p", "m"), ConfigError);
}

TEST_CASE("a failed check names the condition and the place") {
    const int n = 3;
    CHECK_NOTHROW([&] { KVSIM_CHECK(n == 3, "n {}", n); }());
    CHECK_THROWS_WITH(
        [&] { KVSIM_CHECK(n == 4, "n is {}", n); }(),
        ContainsSubstring("test_error.cpp:") && ContainsSubstring("broken invariant `n == 4`: n is 3"));
}

}  // namespace
}  // namespace kvsim
