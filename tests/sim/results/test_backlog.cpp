// The verdict on queues whose answer theory knows.
#include "sim/results/backlog.hpp"

#include <algorithm>
#include <vector>

#include "sim/base/random.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// M/M/1 by Lindley's recursion: service of mean 1 s, arrivals at `utilisation` per second.
StabilityTest mm1(double utilisation, int arrivals, std::uint64_t seed) {
    RandomStream gaps(seed, "gaps");
    RandomStream services(seed, "services");
    Backlog backlog;
    std::vector<double> leaves;  // of requests in order, so in order of time
    std::size_t left = 0;
    double now = 0.0;
    for (int i = 0; i < arrivals; ++i) {
        now += gaps.exponential(1.0 / utilisation);
        while (left < leaves.size() && leaves[left] <= now) ++left;
        backlog.arrival(time_from_seconds(now), static_cast<std::int64_t>(leaves.size() - left));
        const double starts = leaves.empty() ? now : std::max(now, leaves.back());
        leaves.push_back(starts + services.exponential(1.0));
    }
    return backlog.test(time_from_seconds(1.0));
}

int verdicts(Stability wanted, double utilisation, int arrivals) {
    int count = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed)
        count += mm1(utilisation, arrivals, seed).verdict == wanted ? 1 : 0;
    return count;
}

TEST_CASE("queues that keep up are hardly ever called unstable, even close to saturation") {
    for (const double utilisation : {0.3, 0.5, 0.8, 0.9, 0.95, 0.99})
        CHECK(verdicts(Stability::kUnstable, utilisation, 10'000) <= 3);
    CHECK(verdicts(Stability::kStable, 0.5, 10'000) == 100);
    CHECK(verdicts(Stability::kStable, 0.8, 10'000) >= 97);
}

TEST_CASE("queues that grow are called unstable, and by how much") {
    // Of random walks with a drift of 1 - 1 / utilisation, five standard deviations and more from zero.
    CHECK(verdicts(Stability::kUnstable, 1.2, 10'000) == 100);
    CHECK(verdicts(Stability::kUnstable, 2.0, 1'000) == 100);
    const StabilityTest test = mm1(1.5, 100'000, 7);
    CHECK(test.verdict == Stability::kUnstable);
    CHECK(*test.growth == Approx(1.0 / 3.0).epsilon(0.05));
    CHECK(verdicts(Stability::kStable, 1.1, 10'000) == 0);
}

TEST_CASE("a system that is still filling, or hardly seen, has no verdict") {
    CHECK(Backlog{}.test(Time()).verdict == Stability::kTooShort);
    CHECK_FALSE(Backlog{}.test(Time()).growth);
    // One arrival a second, each of which stays for 1000 s: the number grows all the same until then.
    Backlog filling;
    for (int i = 0; i < 900; ++i) filling.arrival(time_from_seconds(i), i);
    CHECK(filling.test(time_from_seconds(1000)).verdict == Stability::kTooShort);
    CHECK(filling.test(time_from_seconds(10)).verdict == Stability::kUnstable);
    CHECK(*filling.test(time_from_seconds(10)).growth == Approx(1.0));
    Backlog filled;
    for (int i = 0; i < 9000; ++i) filled.arrival(time_from_seconds(i), std::min(i, 1000));
    CHECK(filled.test(time_from_seconds(1000)).verdict == Stability::kStable);
    Backlog few;
    for (int i = 0; i < 63; ++i) few.arrival(time_from_seconds(i), 0);
    CHECK(few.test(Time()).verdict == Stability::kTooShort);
    few.arrival(time_from_seconds(63), 0);
    CHECK(few.test(Time()).verdict == Stability::kStable);
}

}  // namespace
}  // namespace kvsim
