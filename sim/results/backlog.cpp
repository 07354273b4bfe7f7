#include "sim/results/backlog.hpp"

#include <cmath>

namespace kvsim {
namespace {

constexpr std::int64_t kLeastArrivals = 64;
constexpr double kMostStaying = 0.05;  // per arrival, of a stable system
constexpr double kErrors = 2.0;        // Student's t for 31 to 63 degrees of freedom: 2.04 to 2.00

}  // namespace

void Backlog::keep(Point point) {
    points_.push_back(point);
    if (points_.size() < kMost) return;
    for (std::size_t i = 0; i < kMost / 2; ++i) points_[i] = points_[2 * i];
    points_.resize(kMost / 2);
    stride_ *= 2;
}

StabilityTest Backlog::test(Time stay) const {
    StabilityTest test;
    if (arrivals_ < kLeastArrivals) return test;
    const std::size_t first = (points_.size() - 1) / 2;
    const auto increments = static_cast<double>(points_.size() - 1 - first);
    const auto per_increment = static_cast<double>(stride_);
    const auto grown = [&](std::size_t i) {
        return static_cast<double>(points_[i + 1].in_system - points_[i].in_system) / per_increment;
    };
    double mean = 0.0;
    for (std::size_t i = first; i + 1 < points_.size(); ++i) mean += grown(i) / increments;
    double squares = 0.0;
    for (std::size_t i = first; i + 1 < points_.size(); ++i) squares += (grown(i) - mean) * (grown(i) - mean);
    const double interval = kErrors * std::sqrt(squares / (increments - 1.0) / increments);
    test.growth = mean;
    test.ci95 = interval;
    if (to_seconds(points_.back().time - points_[first].time) < 2.0 * to_seconds(stay)) return test;
    if (mean - interval > 0.0) {
        test.verdict = Stability::kUnstable;
    } else if (mean + interval < kMostStaying) {
        test.verdict = Stability::kStable;
    }
    return test;
}

}  // namespace kvsim
