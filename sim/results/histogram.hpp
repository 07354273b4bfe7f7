// Samples that are too many to keep: a histogram in fixed memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/results/run_result.hpp"

namespace kvsim {

// A sum of 64-bit integers that cannot overflow.
__extension__ using WideSum = __int128;

// Log-linear: every power of two is cut into 2^14 buckets of the same width, so that a bucket is at most
// 2^-14 = 0.0061 % of its values wide, and holds a single value below 2^15. A bucket stands for the first
// value that fell into it: percentiles are exact as long as no two different values share a bucket, and
// within 0.0061 % otherwise. Count, minimum, maximum and mean are exact. Memory is at most 256 KiB per power
// of two that occurs, 12.5 MiB in all.
class Histogram {
  public:
    // `count` >= 0 samples of `value` >= 0.
    void add(std::int64_t value, std::int64_t count);

    std::int64_t count() const { return count_; }
    // Of the samples x scale: 1e-9 for picoseconds in milliseconds.
    Summary summary(double scale) const;

  private:
    // Apart, because a value that comes again, as nearly all do, touches its count alone.
    struct Power {
        std::vector<std::int64_t> counts;
        std::vector<std::int64_t> firsts;  // of buckets with a count
    };
    static constexpr int kBits = 14;
    static constexpr std::size_t kPowers = 64 - kBits;  // 0: values below 2^14; p: those of 2^(13 + p)

    // Each as long as its largest value asks, so that short runs are cheap.
    std::array<Power, kPowers> powers_;
    std::int64_t count_ = 0;
    std::int64_t min_ = 0;
    std::int64_t max_ = 0;
    WideSum sum_ = 0;
    double squares_ = 0.0;  // sum of the squares
};

}  // namespace kvsim
