#include <filesystem>
#include <fstream>

#include "sim/base/error.hpp"
#include "sim/cost/fit.hpp"
#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

// A fit.yaml in a folder of its own.
std::string write_fit(const std::string& name, const std::string& text) {
    const auto folder = std::filesystem::path(KVSIM_BINARY_DIR) / "test_fit_io" / name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "fit.yaml", std::ios::binary) << text;
    return folder.string();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a fit reads back as what was written, to the last bit", "[fit_io]") {
    const ProfileFit fit = fit_profile(synthetic_profile_of_all());
    const std::string text = to_yaml(fit);
    const std::string folder = write_fit("round_trip", text);
    const ProfileFit back = load_fit(folder);
    CHECK(to_yaml(back) == text);
    CHECK(to_yaml(load_fit(folder + "/fit.yaml")) == text);
    const LinearWork work{77, 77, 500, 3, 3 * 16};
    CHECK(back.linear_time({gdn(32), Form::kBuffered, work}).time ==
          fit.linear_time({gdn(32), Form::kBuffered, work}).time);
    const LinearWork verify{77, 385, 500, 3, 3 * 11};
    CHECK(back.linear_time({gdn(32), Form::kVerifyBuffered, verify}).time ==
          fit.linear_time({gdn(32), Form::kVerifyBuffered, verify}).time);
    CHECK(back.copy.law.gb_per_s == fit.copy.law.gb_per_s);
}

TEST_CASE("regimes read back in order, and out of order are refused", "[fit_io]") {
    ProfileFit fit = fit_profile(synthetic_profile());
    std::vector<LinearRegime>& regimes = fit.linear.front().regimes;
    regimes.insert(regimes.begin(), 2, regimes.front());
    regimes[0].max_state_bytes = 1e6;
    regimes[1].max_state_bytes = 2e6;
    const std::string text = to_yaml(fit);
    const ProfileFit back = load_fit(write_fit("regimes", text));
    CHECK(to_yaml(back) == text);
    CHECK(back.linear.front().regimes.size() == 3);
    CHECK_THROWS_WITH(
        load_fit(write_fit("order", replaced(text, "max_state_bytes: 2", "max_state_bytes: 0.2"))),
        ContainsSubstring("max_state_bytes"));
}

TEST_CASE("a damaged fit is refused with its place", "[fit_io]") {
    const std::string text = to_yaml(fit_profile(synthetic_profile_of_all()));
    const auto load = [&](const char* name, const std::string& from, const std::string& to) {
        return load_fit(write_fit(name, replaced(text, from, to)));
    };
    CHECK_THROWS_WITH(load("unknown_key", "latency_us", "latencyus"), ContainsSubstring("latencyus"));
    CHECK_THROWS_WITH(load("unknown_form", "form: buffered", "form: bufered"), ContainsSubstring("bufered"));
    CHECK_THROWS_WITH(load("schema", "kvsim/fit/1", "kvsim/fit/9"), ContainsSubstring("schema"));
    CHECK_THROWS_WITH(load("out_of_bounds", "serial: ", "serial: 7"), ContainsSubstring("serial"));
    CHECK_THROWS_WITH(load("unknown_kernel", "kernel: small", "kernel: smal"), ContainsSubstring("smal"));
    CHECK_THROWS_WITH(load("kernel_twice", "kernel: small", "kernel: pipelined"),
                      ContainsSubstring("at most once each"));
    CHECK_THROWS_WITH(load("no_law", "form: buffered", "form: direct"),
                      ContainsSubstring("no law for form direct"));
    CHECK_THROWS_AS(load_fit(std::string(KVSIM_BINARY_DIR) + "/test_fit_io/absent"), ConfigError);
}
