#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/base/percentile.hpp"
#include "sim/results/histogram.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kBatches = 20;
constexpr std::size_t kLeastForBatches = 100;
constexpr double kStudent19 = 2.093;  // 97.5 % quantile of Student's t with 19 degrees of freedom

// Half the 95 % interval of the mean of samples in order of time. Batches are of the same size; the samples
// that do not fill one are the first.
template <class T>
std::optional<double> batch_means_interval(std::span<const T> values) {
    if (values.size() < kLeastForBatches) return std::nullopt;
    const std::size_t size = values.size() / kBatches;
    std::span<const T> rest = values.last(size * kBatches);
    std::array<double, kBatches> means{};
    double mean = 0.0;
    for (double& batch : means) {
        for (const T value : rest.first(size)) batch += static_cast<double>(value);
        batch /= static_cast<double>(size);
        mean += batch / kBatches;
        rest = rest.subspan(size);
    }
    double squares = 0.0;
    for (const double batch : means) squares += (batch - mean) * (batch - mean);
    return kStudent19 * std::sqrt(squares / (kBatches - 1) / kBatches);
}

// Selects ranks that do not fall, each from what the ones before left above them: linear time in all.
template <class T>
class Selection {
  public:
    explicit Selection(std::vector<T> values) : values_(std::move(values)) {}
    T at(std::size_t rank) {
        if (rank >= from_) {
            const auto nth = values_.begin() + static_cast<std::ptrdiff_t>(rank);
            std::nth_element(values_.begin() + static_cast<std::ptrdiff_t>(from_), nth, values_.end());
            from_ = rank;
        }
        return values_[rank];
    }

  private:
    std::vector<T> values_;
    std::size_t from_ = 0;  // what lies below has its place
};

// Ranks of values >= 0 without ordering all of them: counts the values by exponent and the first 8 bits of
// the mantissa, and selects within the buckets that hold a rank. `ranks` ascend.
template <class T>
class Ranks {
  public:
    Ranks(std::span<const T> values, T min, T max, std::span<const std::int64_t> ranks)
        : lowest_(bits(min)), selection_(pick(values, max, ranks)) {}
    // One of the ranks; they may not fall from call to call by more than one.
    T at(std::int64_t rank) {
        const auto found = std::upper_bound(picked_.begin(), picked_.end(), rank,
                                            [](std::int64_t r, const Picked& p) { return r < p.first_rank; });
        const Picked& bucket = *std::prev(found);
        return selection_.at(static_cast<std::size_t>(rank - bucket.first_rank + bucket.first_picked));
    }

  private:
    struct Picked {  // a bucket whose values were all taken
        std::int64_t first_rank = 0;
        std::int64_t first_picked = 0;
    };

    // Doubles above zero are in the order of their bits; rounding to one keeps the order of integers. All that
    // is below kLeast shares a bucket, or a sample of zero would have one for every exponent above it.
    static constexpr double kLeast = 1.0 / (1 << 30);
    static std::uint64_t bits(T value) {
        return std::bit_cast<std::uint64_t>(std::max(static_cast<double>(value), kLeast)) >> 44;
    }
    std::vector<T> pick(std::span<const T> values, T max, std::span<const std::int64_t> ranks) {
        std::vector<std::int64_t> counts(static_cast<std::size_t>(bits(max) - lowest_ + 1));
        for (const T value : values) ++counts[bits(value) - lowest_];
        std::vector<bool> wanted(counts.size());
        std::int64_t before = 0;
        std::int64_t taken = 0;
        auto rank = ranks.begin();
        for (std::size_t b = 0; b < counts.size(); ++b) {
            const std::int64_t end = before + counts[b];
            if (rank != ranks.end() && *rank < end) {
                wanted[b] = true;
                picked_.push_back({before, taken});
                taken += counts[b];
                while (rank != ranks.end() && *rank < end) ++rank;
            }
            before = end;
        }
        std::vector<T> chosen;
        chosen.reserve(static_cast<std::size_t>(taken));
        for (const T value : values) {
            if (wanted[bits(value) - lowest_]) chosen.push_back(value);
        }
        return chosen;
    }

    std::uint64_t lowest_;
    std::vector<Picked> picked_;
    Selection<T> selection_;
};

template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, WideSum, double>;

template <class T>
Summary summary_of(std::span<const T> values, double scale) {
    Summary s;
    s.count = static_cast<std::int64_t>(values.size());
    if (values.empty()) return s;
    const auto count = static_cast<double>(s.count);
    Sum<T> sum = 0;
    T min = values.front();
    T max = values.front();
    for (const T value : values) {
        sum += value;
        min = std::min(min, value);
        max = std::max(max, value);
    }
    KVSIM_CHECK(min >= 0, "a sample of {}", min);
    const double mean = static_cast<double>(sum) / count;
    double squares = 0.0;
    for (const T value : values) {
        const double away = static_cast<double>(value) - mean;
        squares += away * away;
    }
    s.mean = mean * scale;
    s.std = std::sqrt(squares / count) * scale;
    s.ci95 = batch_means_interval(values);
    if (s.ci95) *s.ci95 *= scale;
    s.max = static_cast<double>(max) * scale;

    constexpr std::array<double, 4> kQuantiles{0.50, 0.90, 0.95, 0.99};
    std::vector<std::int64_t> needed;
    for (const double q : kQuantiles) {
        percentile(s.count, q, [&](std::int64_t rank) {
            needed.push_back(rank);
            return 0.0;
        });
    }
    std::ranges::sort(needed);
    Ranks<T> ranks(values, min, max, needed);
    const auto at = [&](std::int64_t rank) { return static_cast<double>(ranks.at(rank)) * scale; };
    s.p50 = percentile(s.count, kQuantiles[0], at);
    s.p90 = percentile(s.count, kQuantiles[1], at);
    s.p95 = percentile(s.count, kQuantiles[2], at);
    s.p99 = percentile(s.count, kQuantiles[3], at);
    return s;
}

}  // namespace

Summary summarise(std::span<const std::int64_t> values, double scale) {
    return summary_of(values, scale);
}

Summary summarise(std::span<const double> values) {
    return summary_of(values, 1.0);
}

Summary constant_summary(double value, std::int64_t count) {
    Summary s;
    s.count = count;
    if (count == 0) return s;
    s.mean = s.p50 = s.p90 = s.p95 = s.p99 = s.max = value;
    s.std = 0.0;
    return s;
}

}  // namespace kvsim
