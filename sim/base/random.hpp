// Named streams of random numbers: the same seed and name give the same numbers on every machine, whatever
// other streams draw. Compared runs that share a seed therefore see the same arrivals and lengths.
#pragma once

#include <boost/random/mersenne_twister.hpp>
#include <cstdint>
#include <string_view>

namespace kvsim {

// A generator of its own (64-bit Mersenne Twister) with the distributions that the simulator needs. The
// distributions are Boost.Random's: those of the standard library differ between implementations.
class RandomStream {
  public:
    RandomStream(std::uint64_t seed, std::string_view name);

    std::uint64_t bits();                            // uniform over all 64-bit values
    double uniform();                                // [0, 1)
    double exponential(double mean);                 // mean > 0
    double gamma(double shape, double mean);         // both > 0
    double log_normal(double median, double sigma);  // median > 0, sigma >= 0 of the logarithm

  private:
    boost::random::mt19937_64 engine_;
};

// Seed of a stream's generator: the FNV-1a hash of the name and the run's seed, mixed by the SplitMix64
// finaliser, so that neighbouring seeds and similar names give unrelated generators.
std::uint64_t stream_seed(std::uint64_t seed, std::string_view name);

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): its finaliser, and the n-th number, n >= 1, of the
// generator that starts from `stream`, in any order. For draws that depend on what they are drawn for and not
// on when.
constexpr std::uint64_t split_mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}
inline constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;
constexpr std::uint64_t numbered_bits(std::uint64_t stream, std::uint64_t n) {
    return split_mix(stream + n * kSplitMixStep);
}

}  // namespace kvsim
