// The histogram against the samples that it was given.
#include <cmath>
#include <limits>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/results/histogram.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("values below 2^15 are kept as they are") {
    RandomStream random(5, "histogram");
    for (int round = 0; round < 200; ++round) {
        Histogram histogram;
        std::vector<std::int64_t> samples;
        const auto groups = random.bits() % 12;
        for (std::uint64_t i = 0; i < groups; ++i) {
            const auto count = 1 + random.bits() % 5;
            const auto value = static_cast<std::int64_t>(random.bits() % (1 << 15));
            histogram.add(value, static_cast<std::int64_t>(count));
            samples.insert(samples.end(), count, value);
        }
        const Summary binned = histogram.summary(0.5);
        const Summary plain = summarise(samples, 0.5);
        CHECK(binned.count == plain.count);
        CHECK(binned.mean == plain.mean);
        CHECK(binned.p50 == plain.p50);
        CHECK(binned.p90 == plain.p90);
        CHECK(binned.p95 == plain.p95);
        CHECK(binned.p99 == plain.p99);
        CHECK(binned.max == plain.max);
        if (plain.std) CHECK(*binned.std == Approx(*plain.std).margin(1e-6));
    }
}

TEST_CASE("larger values are within 2^-14") {
    Histogram histogram;
    std::vector<std::int64_t> samples;
    RandomStream random(6, "histogram");
    for (int i = 0; i < 20'000; ++i) {
        // Picoseconds from 1 us to some seconds.
        const auto value = static_cast<std::int64_t>(1e9 * random.log_normal(1.0, 3.0)) + 1'000'000;
        samples.push_back(value);
        histogram.add(value, 1);
    }
    const Summary binned = histogram.summary(1.0);
    const Summary plain = summarise(samples, 1.0);
    const double resolution = std::ldexp(1.0, -14);
    CHECK(*binned.mean == Approx(*plain.mean).epsilon(1e-14));
    CHECK(*binned.std == Approx(*plain.std).epsilon(1e-9));
    CHECK(*binned.p50 == Approx(*plain.p50).epsilon(resolution));
    CHECK(*binned.p99 == Approx(*plain.p99).epsilon(resolution));
    CHECK(binned.max == plain.max);
}

TEST_CASE("equal samples are exact, at either end of the range") {
    for (const std::int64_t value :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{(1 << 14) - 1}, std::int64_t{1 << 14},
          std::int64_t{123'456'789'012'345}, std::numeric_limits<std::int64_t>::max()}) {
        Histogram histogram;
        histogram.add(value, 1'000'000'000);
        const Summary s = histogram.summary(1.0);
        const auto expected = static_cast<double>(value);
        CHECK(s.count == 1'000'000'000);
        CHECK((*s.mean == expected && *s.p50 == expected && *s.p99 == expected && *s.max == expected));
        CHECK(*s.std == 0.0);
    }
    CHECK_FALSE(Histogram{}.summary(1.0).mean);
}

TEST_CASE("two values that share a bucket stand for the first, but not at the ends") {
    // 2^20 and 2^20 + 1 lie in a bucket of 2^6.
    constexpr std::int64_t kLow = 1 << 20;
    Histogram histogram;
    histogram.add(kLow, 60);
    histogram.add(kLow + 1, 40);
    const Summary s = histogram.summary(1.0);
    CHECK(*s.p50 == kLow);
    CHECK(*s.p90 == kLow);
    CHECK(*s.max == kLow + 1);
    CHECK(*s.mean == Approx(kLow + 0.4).epsilon(1e-15));
}

}  // namespace
}  // namespace kvsim
