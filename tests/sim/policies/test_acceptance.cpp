// Drafts kept: closed forms of the expected number, and draws against them.
#include <cmath>
#include <limits>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/policies/speculation.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();

TEST_CASE("expected tokens are the geometric sum") {
    for (const double a : {0.1, 0.5, 0.8, 0.95}) {
        const Acceptance acceptance({.rates = {a}});
        for (int k = 0; k <= 16; ++k)
            CHECK(1.0 + acceptance.expected(k, 1000) == Approx((1.0 - std::pow(a, k + 1)) / (1.0 - a)));
    }
}

TEST_CASE("acceptance lengths of SPEED-Bench, draft length 7, from rates fitted to three digits") {
    // Qwen3.5-397B greedy and at temperature 1, Nemotron-3 Super, Ultra. A rate that is off by 0.0005 moves
    // the length by at most 0.0005 sum i a^(i-1) = 0.01.
    const std::vector<std::pair<double, double>> published{
        {0.832, 4.58}, {0.820, 4.42}, {0.735, 3.45}, {0.818, 4.39}};
    for (const auto& [rate, length] : published)
        CHECK(std::abs(1.0 + Acceptance({.rates = {rate}}).expected(7, 1) - length) < 0.01);
}

TEST_CASE("rates per position: the last holds for all further drafts") {
    const Acceptance acceptance({.rates = {0.9, 0.5}});
    CHECK(acceptance.expected(3, 1) == Approx(0.9 + 0.9 * 0.5 + 0.9 * 0.5 * 0.5));
}

TEST_CASE("rates halve at half_context") {
    const Acceptance acceptance({.rates = {0.8}, .half_context = 1000.0});
    CHECK(acceptance.expected(1, 0) == Approx(0.8));
    CHECK(acceptance.expected(1, 1000) == Approx(0.4));
    CHECK(acceptance.expected(2, 3000) == Approx(0.1 + 0.01));
    CHECK(acceptance.expected(4, 1'000'000) < 1e-29);
    const Acceptance one({.rates = {1.0}, .half_context = 777.0});
    for (std::int64_t context = 0; context < 20 * 777; ++context)
        CHECK(one.expected(1, context) ==
              Approx(std::exp2(-static_cast<double>(context) / 777.0)).epsilon(5e-6));
    // 93.5 % to 72 % at the first position: context = half log2(93.5 / 72).
    const Acceptance reported({.rates = {0.935}, .half_context = 32768.0 / std::log2(93.5 / 72.0)});
    CHECK(reported.expected(1, 32768) == Approx(0.72));
}

TEST_CASE("draws average to the expected number within five standard deviations") {
    const std::vector<AcceptanceSpec> specs{
        {.rates = {0.7}}, {.rates = {0.95, 0.8, 0.3}}, {.rates = {0.9}, .half_context = 5000.0}};
    constexpr int kDraws = 200'000;
    std::uint64_t n = 0;
    for (const AcceptanceSpec& spec : specs) {
        const Acceptance acceptance(spec);
        for (const int k : {1, 3, 7}) {
            const std::int64_t context = 3000;
            double sum = 0.0;
            for (int i = 0; i < kDraws; ++i)
                sum += acceptance.draw(k, context, Acceptance::uniform(numbered_bits(17, ++n)));
            // E X^2 = sum of (2 i - 1) P(X >= i), and P(X >= i) is a difference of expected numbers.
            const double mean = acceptance.expected(k, context);
            double square = 0.0;
            for (int i = 1; i <= k; ++i)
                square +=
                    (2 * i - 1) * (acceptance.expected(i, context) - acceptance.expected(i - 1, context));
            const double deviation = std::sqrt((square - mean * mean) / kDraws);
            CHECK(std::abs(sum / kDraws - mean) < 5.0 * deviation);
        }
    }
}

TEST_CASE("rates of 0 and 1 are exact") {
    for (const std::optional<double> half : {std::optional<double>(), std::optional<double>(1e9)}) {
        const Acceptance never({.rates = {0.0}, .half_context = half});
        for (const std::int32_t u : {0, 1, kLargest}) CHECK(never.draw(5, 0, u) == 0);
    }
    const Acceptance always({.rates = {1.0}});
    for (const std::int32_t u : {0, 1, kLargest}) CHECK(always.draw(5, 100, u) == 5);
    const Acceptance two({.rates = {1.0, 1.0, 0.0}});
    for (const std::int32_t u : {0, kLargest}) CHECK(two.draw(5, 100, u) == 2);
}

TEST_CASE("limits say the same as draws, and a further draft changes a draw by one at most") {
    const Acceptance acceptance({.rates = {0.9, 0.6, 0.8}});
    for (std::uint64_t n = 1; n <= 2000; ++n) {
        const std::int32_t u = Acceptance::uniform(numbered_bits(3, n));
        for (int k = 0; k < 9; ++k) {
            int below = 0;
            for (const std::int32_t limit : acceptance.limits().first(static_cast<std::size_t>(k)))
                below += u <= limit ? 1 : 0;
            const int kept = acceptance.draw(k, 1, u);
            CHECK(kept == below);
            const int more = acceptance.draw(k + 1, 1, u);
            CHECK((more == kept || (more == kept + 1 && kept == k)));
        }
    }
}

TEST_CASE("what is no rate is refused, all of it at once") {
    CHECK_THROWS_WITH(Acceptance({}), "speculation.acceptance.rates: expected at least one rate, got none");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    try {
        const Acceptance acceptance({.rates = {1.2, 0.5, nan}, .half_context = 0.0});
        FAIL("accepted");
    } catch (const ConfigError& error) {
        CHECK(error.mistakes().size() == 3);
    }
}

}  // namespace
}  // namespace kvsim
