// Speculation policies: choices worked out by hand, and what is refused.
#include <algorithm>
#include <set>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/policies/speculation.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// 10 ms while 100 tokens or fewer are computed, in proportion beyond: a GPU that is idle in small batches.
class Saturating final : public StepTimes {
  public:
    Time step_time(std::int64_t rows, std::int64_t context, int drafts) const override {
        contexts.push_back(context);
        return time_from_us(std::max(10'000.0, 100.0 * static_cast<double>(rows * (1 + drafts))));
    }
    mutable std::vector<std::int64_t> contexts;
};

int choice(const SpeculationSpec& spec, std::int64_t rows, std::int64_t context = 1000) {
    const Saturating times;
    return make_speculation_policy(spec, times)->drafts(rows, context);
}

SpeculationSpec goodput(int most, AcceptanceSpec acceptance) {
    return {.policy = "goodput", .drafts = most, .acceptance = std::move(acceptance)};
}

TEST_CASE("none and static propose what they say") {
    CHECK(choice({}, 7) == 0);
    CHECK(choice({.policy = "static", .drafts = 3}, 1) == 3);
    CHECK(choice({.policy = "static", .drafts = 3}, 5000) == 3);
}

TEST_CASE("a table holds from its number of rows to the next") {
    const SpeculationSpec spec{.policy = "table", .table = {{1, 4}, {8, 2}, {32, 0}}};
    CHECK(spec.most_drafts() == 4);
    for (const std::int64_t rows : {1, 7}) CHECK(choice(spec, rows) == 4);
    for (const std::int64_t rows : {8, 31}) CHECK(choice(spec, rows) == 2);
    for (const std::int64_t rows : {32, 1000}) CHECK(choice(spec, rows) == 0);
}

TEST_CASE("goodput drafts while the GPU is idle, and stops where a step grows with its tokens") {
    // Tokens per step at a rate of 0.8: 1, 1.8, 2.44, 2.952, 3.3616 for k = 0 .. 4.
    const SpeculationSpec spec = goodput(4, {.rates = {0.8}});
    CHECK(choice(spec, 1) == 4);    // always 10 ms
    CHECK(choice(spec, 20) == 4);   // 100 tokens at k = 4
    CHECK(choice(spec, 33) == 2);   // 99 tokens: 244/s; 132 tokens: 2.952 in 13.2 ms, 224/s
    CHECK(choice(spec, 50) == 1);   // 1.8 in 10 ms, 180/s; 2.44 in 15 ms, 163/s
    CHECK(choice(spec, 100) == 0);  // 1 in 10 ms; 1.8 in 20 ms
    CHECK(choice(spec, 512) == 0);
}

TEST_CASE("goodput follows the acceptance: useless drafts are not made, and fewer at long contexts") {
    CHECK(choice(goodput(4, {.rates = {0.0}}), 1) == 0);
    CHECK(choice(goodput(4, {.rates = {1.0, 1.0, 0.0}}), 1) == 2);  // of equals the fewest
    // 30 rows: 9, 12, 15 ms for k = 2, 3, 4. Rates of 1: 3 in 10 ms, 4 in 12, 5 in 15 ms: 300, 333, 333/s.
    CHECK(choice(goodput(4, {.rates = {1.0}, .half_context = 1e6}), 30, 1) >= 3);
    // Halved three times: 1.125 in 10 ms, 1 + 1/8 + 1/64 in 10, + 1/512 in 12 ms.
    CHECK(choice(goodput(4, {.rates = {1.0}, .half_context = 1000.0}), 30, 3000) == 2);
}

TEST_CASE("goodput asks once per number of rows and class of contexts, near the context") {
    const Saturating times;
    const auto policy = make_speculation_policy(goodput(4, {.rates = {0.8}}), times);
    for (std::int64_t context = 1; context < 300'000; context += 1 + context / 50) {
        const std::size_t before = times.contexts.size();
        policy->drafts(20, context);
        for (std::size_t i = before; i < times.contexts.size(); ++i)
            CHECK(8 * std::abs(times.contexts[i] - context) <= std::max(times.contexts[i], context));
    }
    // Contexts below 8 one by one, then four classes per power of two, up to 2^18 < 300,000.
    CHECK(std::set<std::int64_t>(times.contexts.begin(), times.contexts.end()).size() <= 7 + 4 * 16);
    const std::size_t asked = times.contexts.size();
    for (std::int64_t context = 1; context < 200'000; context += 777) policy->drafts(20, context);
    CHECK(times.contexts.size() == asked);
    policy->drafts(21, 1000);
    CHECK(times.contexts.size() == asked + 5);  // k = 0 .. 4
}

TEST_CASE("what a policy cannot work with is refused") {
    CHECK_THROWS_WITH(choice({.policy = "sometimes"}, 1),
                      "speculation.policy: expected one of none, static, table, goodput, got sometimes");
    CHECK_THROWS_WITH(choice({.policy = "static", .drafts = 65}, 1),
                      "speculation.drafts: expected at most 64, got 65");
    CHECK_THROWS_AS(choice({.policy = "static", .drafts = -1}, 1), ConfigError);
    CHECK_THROWS_AS(choice({.policy = "table"}, 1), ConfigError);
    CHECK_THROWS_AS(choice({.policy = "table", .table = {{2, 3}}}, 1), ConfigError);
    CHECK_THROWS_AS(choice({.policy = "table", .table = {{1, 3}, {1, 2}}}, 1), ConfigError);
    CHECK_THROWS_AS(choice({.policy = "table", .table = {{1, -3}}}, 1), ConfigError);
    CHECK_THROWS_AS(choice({.policy = "goodput", .acceptance = {.rates = {0.5}}}, 1), ConfigError);
    CHECK_THROWS_AS(choice({.policy = "goodput", .drafts = 3}, 1), ConfigError);  // no rates
}

TEST_CASE("names of speculation policies are distinct and explained") {
    std::set<std::string_view> names;
    for (const SpeculationPolicyEntry& entry : speculation_policies()) {
        names.insert(entry.name);
        CHECK_FALSE(entry.help.empty());
    }
    CHECK(names.size() == speculation_policies().size());
    CHECK(speculation_policies()[0].name == SpeculationSpec{}.policy);
}

}  // namespace
}  // namespace kvsim
