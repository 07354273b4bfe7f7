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
    double log_normal(double median, double sigma);  // median > 0, sigma >= 0 of the logarithm

  private:
    boost::random::mt19937_64 engine_;
};

// Seed of a stream's generator: the FNV-1a hash of the name and the run's seed, mixed by the SplitMix64
// finaliser, so that neighbouring seeds and similar names give unrelated generators.
std::uint64_t stream_seed(std::uint64_t seed, std::string_view name);

}  // namespace kvsim
