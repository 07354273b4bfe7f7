// Percentiles by numpy's default method, and the interval of a mean.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/results/run_result.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("percentiles are linear between closest ranks") {
    // Ranks 0.5 x 4 = 2, 0.9 x 4 = 3.6, 0.99 x 4 = 3.96 of 15, 20, 35, 40, 50 (numpy.percentile's documented
    // method).
    std::vector<double> samples{50, 15, 40, 20, 35};
    const Summary s = summarise(samples);
    CHECK(s.count == 5);
    CHECK(*s.mean == Approx(32.0));
    CHECK(*s.p50 == Approx(35.0));
    CHECK(*s.p90 == Approx(40.0 + 0.6 * 10.0));
    CHECK(*s.p99 == Approx(40.0 + 0.96 * 10.0));
}

TEST_CASE("few samples") {
    std::vector<double> none;
    const Summary empty = summarise(none);
    CHECK(empty.count == 0);
    CHECK_FALSE((empty.mean || empty.p50 || empty.p90 || empty.p99));

    std::vector<double> one{7.5};
    const Summary single = summarise(one);
    CHECK(single.count == 1);
    CHECK((*single.mean == 7.5 && *single.p50 == 7.5 && *single.p90 == 7.5 && *single.p99 == 7.5));

    std::vector<double> two{3.0, 1.0};
    const Summary pair = summarise(two);
    CHECK(*pair.p50 == Approx(2.0));
    CHECK(*pair.p90 == Approx(2.8));
}

TEST_CASE("whole numbers give what the same numbers as doubles give, scaled") {
    std::vector<std::int64_t> ps{50'000'000'000, 15'000'000'000, 40'000'000'000, 20'000'000'000,
                                 35'000'000'000};
    const Summary s = summarise(ps, 1e-9);
    CHECK(*s.mean == Approx(32.0));
    CHECK(*s.p50 == Approx(35.0));
    CHECK(*s.p90 == Approx(46.0));
    CHECK(*s.p95 == Approx(48.0));  // rank 3.8
    CHECK(*s.p99 == Approx(49.6));
    CHECK(*s.max == Approx(50.0));
    // numpy.std: squares of 18, -17, 8, -12, 3 sum up to 830.
    CHECK(*s.std == Approx(std::sqrt(830.0 / 5.0)));
    CHECK_FALSE(s.ci95);
    // A sum beyond 64 bits.
    std::vector<std::int64_t> large(3, std::numeric_limits<std::int64_t>::max());
    CHECK(*summarise(large, 1.0).mean == Approx(9.223372036854775807e18));
}

TEST_CASE("percentiles by selection are those of sorted samples") {
    RandomStream random(4, "summary test");
    for (int round = 0; round < 300; ++round) {
        std::vector<std::int64_t> samples;
        const auto size = 1 + random.bits() % 40;
        for (std::uint64_t i = 0; i < size; ++i)
            samples.push_back(static_cast<std::int64_t>(random.bits() % 50));
        std::vector<std::int64_t> sorted = samples;
        std::sort(sorted.begin(), sorted.end());
        const auto expected = [&](double q) {
            const double rank = q * static_cast<double>(size - 1);
            const auto below = static_cast<std::size_t>(rank);
            const auto low = static_cast<double>(sorted[below]);
            const auto high = static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]);
            return low + (rank - static_cast<double>(below)) * (high - low);
        };
        const Summary s = summarise(samples, 1.0);
        CHECK(*s.p50 == expected(0.50));
        CHECK(*s.p90 == expected(0.90));
        CHECK(*s.p95 == expected(0.95));
        CHECK(*s.p99 == expected(0.99));
        CHECK(*s.max == static_cast<double>(sorted.back()));
    }
}

TEST_CASE("the interval of the mean comes from batches, and covers it as often as it says") {
    // 20 batches of 10 equal samples, of means 0, 1, 0, 1, ...: variance of the batch means 20/19 x 1/4.
    std::vector<double> samples;
    for (int batch = 0; batch < 20; ++batch) samples.insert(samples.end(), 10, batch % 2);
    CHECK(*summarise(samples).ci95 == Approx(2.093 * std::sqrt(0.25 / 19.0)));
    std::vector<double> few(99, 1.0);
    CHECK_FALSE(summarise(few).ci95);

    // Independent samples: of 400 intervals, binomial with 0.95, 380 +- 4.4 cover; 362 is four deviations
    // low.
    int covered = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        RandomStream random(seed, "interval");
        std::vector<double> drawn(400);
        for (double& value : drawn) value = random.exponential(3.0);
        const Summary s = summarise(drawn);
        covered += std::abs(*s.mean - 3.0) <= *s.ci95 ? 1 : 0;
    }
    CHECK(covered >= 362);
    CHECK(covered <= 396);
}

}  // namespace
}  // namespace kvsim
