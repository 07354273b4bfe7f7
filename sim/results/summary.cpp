#include <algorithm>
#include <cmath>

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
    explicit Selection(std::span<T> values) : values_(values) {}
    T at(std::int64_t rank) {
        const auto index = static_cast<std::size_t>(rank);
        if (index >= from_) {
            const auto begin = values_.begin();
            std::nth_element(begin + static_cast<std::ptrdiff_t>(from_), begin + rank, values_.end());
            from_ = index;
        }
        return values_[index];
    }

  private:
    std::span<T> values_;
    std::size_t from_ = 0;  // what lies below has its place
};

template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, WideSum, double>;

template <class T>
Summary summary_of(std::span<T> values, double scale) {
    Summary s;
    s.count = static_cast<std::int64_t>(values.size());
    if (values.empty()) return s;
    const auto count = static_cast<double>(s.count);
    Sum<T> sum = 0;
    for (const T value : values) sum += value;
    const double mean = static_cast<double>(sum) / count;
    double squares = 0.0;
    for (const T value : values) {
        const double away = static_cast<double>(value) - mean;
        squares += away * away;
    }
    s.mean = mean * scale;
    s.std = std::sqrt(squares / count) * scale;
    s.ci95 = batch_means_interval<T>(values);
    if (s.ci95) *s.ci95 *= scale;
    Selection<T> selection(values);
    const auto at = [&](std::int64_t rank) { return static_cast<double>(selection.at(rank)) * scale; };
    s.p50 = percentile(s.count, 0.50, at);
    s.p90 = percentile(s.count, 0.90, at);
    s.p95 = percentile(s.count, 0.95, at);
    s.p99 = percentile(s.count, 0.99, at);
    s.max = at(s.count - 1);
    return s;
}

}  // namespace

Summary summarise(std::span<std::int64_t> values, double scale) {
    return summary_of(values, scale);
}

Summary summarise(std::span<double> values) {
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

Summary summarise_ms(std::vector<TimeSamples>& samples) {
    std::sort(samples.begin(), samples.end(), [](const TimeSamples& a, const TimeSamples& b) {
        return a.time != b.time ? a.time < b.time : a.count < b.count;
    });
    Histogram histogram;
    for (const TimeSamples& s : samples) histogram.add(s.time.value(), s.count);
    return histogram.summary(1e-9);
}

}  // namespace kvsim
