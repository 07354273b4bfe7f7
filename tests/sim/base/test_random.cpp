// Random streams: pinned first values, independence of streams, and distributions against their formulas.
//
// Pinned numbers come from an implementation of their own in Python: the 64-bit Mersenne Twister (Nishimura
// 2000), FNV-1a, the SplitMix64 finaliser, and ziggurat tables built from the published start points
// (Marsaglia and Tsang, J. Stat. Softw. 5(8), 2000: exponential 256 layers, r = 7.697117470131049714; normal
// 128 layers, r = 3.442619855896652).
#include "sim/base/random.hpp"

#include <algorithm>
#include <boost/random/mersenne_twister.hpp>
#include <cmath>
#include <functional>
#include <vector>

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("the generator is the standard one: its 10,000th value from the default seed") {
    boost::random::mt19937_64 engine;
    engine.discard(9999);
    CHECK(engine() == 9981545732273789042ULL);  // C++ standard, [rand.predef]
}

TEST_CASE("seeds of streams") {
    // With seed 0 only the name's hash is mixed. FNV-1a of "a" is af63dc4c8601ec8c (published test vector),
    // and of the empty name the offset basis.
    const auto mix = [](std::uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    };
    CHECK(stream_seed(0, "a") == mix(0xaf63dc4c8601ec8c));
    CHECK(stream_seed(0, "") == mix(0xcbf29ce484222325));
    CHECK(stream_seed(1, "arrivals") == 0xff296b98b6dbd2cb);
    CHECK(stream_seed(1, "prompt") == 0x9923bb343fb7682d);
    CHECK(stream_seed(1, "output") == 0x6979979bedbc49eb);
}

TEST_CASE("numbered bits are SplitMix64, in any order") {
    // The generator's published first outputs from the seed 1234567 (Rosetta Code, "Pseudo-random
    // numbers/Splitmix64").
    CHECK(numbered_bits(1234567, 3) == 9817491932198370423ULL);
    CHECK(numbered_bits(1234567, 1) == 6457827717110365317ULL);
    CHECK(numbered_bits(1234567, 2) == 3203168211198807973ULL);
}

TEST_CASE("first values are pinned") {
    RandomStream bits(1, "arrivals");
    CHECK(bits.bits() == 5054752869418249450ULL);
    CHECK(bits.bits() == 12188137181272534396ULL);
    CHECK(bits.bits() == 466624886026537162ULL);

    RandomStream uniform(1, "arrivals");  // bits / 2^64
    CHECK(uniform.uniform() == 5054752869418249450.0 / 18446744073709551616.0);
    CHECK(uniform.uniform() == 12188137181272534396.0 / 18446744073709551616.0);

    RandomStream gaps(1, "arrivals");
    for (const double expected :
         {0.12885435584388014, 1.1370612138347524, 0.021311961358535393, 1.0971798966378954}) {
        CHECK(gaps.exponential(2.0) == Approx(2.0 * expected).epsilon(1e-13));
    }
    RandomStream lengths(1, "prompt");  // 1000 exp(sigma z)
    for (const double z :
         {-1.1382983027662978, -0.10049660135677117, 0.9627459397564865, -1.1920200908165848}) {
        CHECK(lengths.log_normal(1000.0, 0.5) == Approx(1000.0 * std::exp(0.5 * z)).epsilon(1e-13));
    }
}

TEST_CASE("streams depend on seed and name alone") {
    RandomStream a(7, "arrivals"), again(7, "arrivals"), other_name(7, "arrival"), other_seed(8, "arrivals");
    RandomStream busy(7, "prompt");
    int same_name = 0, same_seed = 0;
    for (int i = 0; i < 1000; ++i) {
        const std::uint64_t value = a.bits();
        busy.bits();  // draws of one stream do not move another
        CHECK(again.bits() == value);
        same_name += other_name.bits() == value;
        same_seed += other_seed.bits() == value;
    }
    CHECK(same_name == 0);
    CHECK(same_seed == 0);
}

// Kolmogorov-Smirnov: with n samples the statistic exceeds 1.95/sqrt(n) with probability 0.001.
double ks_statistic(std::vector<double> samples, const std::function<double(double)>& cdf) {
    std::sort(samples.begin(), samples.end());
    const double n = static_cast<double>(samples.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const double p = cdf(samples[i]);
        worst = std::max({worst, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
    }
    return worst * std::sqrt(n);
}

TEST_CASE("distributions follow their formulas") {
    constexpr int kSamples = 100'000;
    RandomStream random(42, "test");
    std::vector<double> uniform, exponential, log_normal;
    for (int i = 0; i < kSamples; ++i) {
        uniform.push_back(random.uniform());
        exponential.push_back(random.exponential(0.25));
        log_normal.push_back(random.log_normal(1020.0, 0.8));
    }
    CHECK(*std::min_element(uniform.begin(), uniform.end()) >= 0.0);
    CHECK(*std::max_element(uniform.begin(), uniform.end()) < 1.0);
    CHECK(ks_statistic(uniform, [](double x) { return x; }) < 1.95);
    CHECK(ks_statistic(exponential, [](double x) { return 1.0 - std::exp(-x / 0.25); }) < 1.95);
    CHECK(ks_statistic(log_normal, [](double x) {
              return 0.5 * std::erfc(-std::log(x / 1020.0) / (0.8 * std::sqrt(2.0)));
          }) < 1.95);
}

TEST_CASE("parameters that make no distribution are faults of ours") {
    RandomStream random(1, "x");
    CHECK_THROWS_AS(random.exponential(0.0), InvariantError);
    CHECK_THROWS_AS(random.exponential(-1.0), InvariantError);
    CHECK_THROWS_AS(random.log_normal(0.0, 1.0), InvariantError);
    CHECK_THROWS_AS(random.log_normal(1.0, -1.0), InvariantError);
    CHECK(random.log_normal(5.0, 0.0) == 5.0);
}

}  // namespace
}  // namespace kvsim
