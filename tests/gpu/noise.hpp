// Random numbers for tests, fast enough for the inputs of tens of thousands of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvsim {

class Noise {
  public:
    explicit Noise(std::uint64_t seed) : state_(seed) {}

    // Mean 0, variance 1, nearly normal: the sum of four uniform 16-bit numbers.
    float normal() {
        const std::uint64_t bits = next();
        const auto sum =
            static_cast<int>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
        constexpr float kMean = 2 * 65535.0f, kDeviation = 37837.2f;  // 65536 / sqrt(3)
        return (static_cast<float>(sum) - kMean) / kDeviation;
    }
    double uniform(double low, double high) {
        return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
    }
    // An integer in [low, high].
    int pick(int low, int high) {
        return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool chance(double probability) { return uniform(0.0, 1.0) < probability; }

    std::vector<float> normals(std::size_t count, float scale = 1.0f) {
        std::vector<float> values(count);
        for (float& x : values) x = scale * normal();
        return values;
    }

    // For std::shuffle.
    using result_type = std::uint64_t;
    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return ~result_type{0}; }
    result_type operator()() { return next(); }

  private:
    // splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    std::uint64_t state_;
};

}  // namespace kvsim
