// Percentiles by numpy's default method, plain and over groups of equal samples.
#include <cstdint>

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

TEST_CASE("groups of equal times give the percentiles of the samples written out") {
    RandomStream random(4, "summary test");
    for (int round = 0; round < 200; ++round) {
        std::vector<TimeSamples> groups;
        std::vector<double> written_out;
        const auto size = random.bits() % 12;
        for (std::uint64_t i = 0; i < size; ++i) {
            const auto count = static_cast<std::int64_t>(1 + random.bits() % 5);
            const Time time(static_cast<std::int64_t>(random.bits() % 4) *
                            1'000'000'000);  // whole ms: exact sums
            groups.push_back({time, count});
            written_out.insert(written_out.end(), static_cast<std::size_t>(count), to_ms(time));
        }
        const Summary grouped = summarise_ms(groups);
        const Summary plain = summarise(written_out);
        CHECK(grouped.count == plain.count);
        CHECK(grouped.mean == plain.mean);
        CHECK(grouped.p50 == plain.p50);
        CHECK(grouped.p90 == plain.p90);
        CHECK(grouped.p99 == plain.p99);
    }
}

}  // namespace
}  // namespace kvsim
