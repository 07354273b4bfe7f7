#include "sim/base/random.hpp"

#include <boost/random/exponential_distribution.hpp>
#include <boost/random/gamma_distribution.hpp>
#include <boost/random/normal_distribution.hpp>
#include <boost/random/uniform_01.hpp>
#include <cmath>

#include "sim/base/check.hpp"

namespace kvsim {

std::uint64_t stream_seed(std::uint64_t seed, std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return numbered_bits(hash, seed);
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view name) : engine_(stream_seed(seed, name)) {}

std::uint64_t RandomStream::bits() {
    return engine_();
}

double RandomStream::uniform() {
    return boost::random::uniform_01<double>()(engine_);
}

double RandomStream::exponential(double mean) {
    KVSIM_CHECK(mean > 0.0 && std::isfinite(mean), "mean {}", mean);
    return mean * boost::random::exponential_distribution<double>(1.0)(engine_);
}

double RandomStream::gamma(double shape, double mean) {
    KVSIM_CHECK(shape > 0.0 && mean > 0.0 && std::isfinite(shape + mean), "shape {}, mean {}", shape, mean);
    return mean / shape * boost::random::gamma_distribution<double>(shape, 1.0)(engine_);
}

double RandomStream::log_normal(double median, double sigma) {
    KVSIM_CHECK(median > 0.0 && sigma >= 0.0 && std::isfinite(median * sigma), "median {}, sigma {}", median,
                sigma);
    return median * std::exp(sigma * boost::random::normal_distribution<double>(0.0, 1.0)(engine_));
}

}  // namespace kvsim
