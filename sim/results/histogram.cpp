#include "sim/results/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/base/check.hpp"
#include "sim/base/percentile.hpp"

namespace kvsim {

void Histogram::add(std::int64_t value, std::int64_t count) {
    KVSIM_CHECK(value >= 0 && count >= 0, "{} samples of {}", count, value);
    if (count == 0) return;
    if (count_ == 0) min_ = max_ = value;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    count_ += count;
    sum_ += static_cast<WideSum>(value) * count;
    const auto real = static_cast<double>(value);
    squares_ += real * real * static_cast<double>(count);

    // A value of 2^(kBits + p - 1) and more has p - 1 bits below the kBits that follow its highest one.
    const auto bits = static_cast<std::uint64_t>(value);
    const auto width = static_cast<std::size_t>(std::bit_width(bits));
    const std::size_t power = width > kBits ? width - kBits : 0;
    const std::uint64_t lower = power == 0 ? bits : bits - (std::uint64_t{1} << (width - 1));
    const std::uint64_t bucket = power == 0 ? lower : lower >> (power - 1);
    Power& buckets = powers_[power];
    if (bucket >= buckets.counts.size()) {
        buckets.counts.resize(std::bit_ceil(bucket + 1));
        buckets.firsts.resize(std::bit_ceil(bucket + 1));
    }
    if (buckets.counts[bucket] == 0) buckets.firsts[bucket] = value;
    buckets.counts[bucket] += count;
}

Summary Histogram::summary(double scale) const {
    Summary s;
    s.count = count_;
    if (count_ == 0) return s;
    const auto count = static_cast<double>(count_);
    const double mean = static_cast<double>(sum_) / count;
    s.mean = mean * scale;
    s.std = min_ == max_ ? 0.0 : std::sqrt(std::max(0.0, squares_ / count - mean * mean)) * scale;
    s.max = static_cast<double>(max_) * scale;

    struct Used {
        std::int64_t first = 0;
        std::int64_t up_to = 0;  // samples up to and with this bucket
    };
    std::vector<Used> used;  // ascending
    std::int64_t up_to = 0;
    for (const Power& power : powers_) {
        for (std::size_t b = 0; b < power.counts.size(); ++b) {
            if (power.counts[b] > 0) used.push_back({power.firsts[b], up_to += power.counts[b]});
        }
    }
    KVSIM_CHECK(up_to == count_, "{} samples in buckets, {} in all", up_to, count_);
    const auto at = [&](std::int64_t rank) {
        if (rank == 0) return static_cast<double>(min_) * scale;
        if (rank == count_ - 1) return static_cast<double>(max_) * scale;
        const auto found = std::upper_bound(used.begin(), used.end(), rank,
                                            [](std::int64_t r, const Used& u) { return r < u.up_to; });
        return static_cast<double>(found->first) * scale;
    };
    s.p50 = percentile(count_, 0.50, at);
    s.p90 = percentile(count_, 0.90, at);
    s.p95 = percentile(count_, 0.95, at);
    s.p99 = percentile(count_, 0.99, at);
    return s;
}

}  // namespace kvsim
