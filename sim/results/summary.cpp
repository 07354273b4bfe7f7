#include <algorithm>
#include <cmath>

#include "sim/base/check.hpp"
#include "sim/base/percentile.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {
namespace {

template <class At>
Summary summary_of(std::int64_t count, double sum, const At& at) {
    Summary summary;
    summary.count = count;
    if (count == 0) return summary;
    summary.mean = sum / static_cast<double>(count);
    summary.p50 = percentile(count, 0.50, at);
    summary.p90 = percentile(count, 0.90, at);
    summary.p99 = percentile(count, 0.99, at);
    return summary;
}

}  // namespace

Summary summarise(std::vector<double>& samples) {
    std::sort(samples.begin(), samples.end());
    double sum = 0.0;
    for (const double sample : samples)
        sum += sample;  // sorted: the sum does not depend on the order of arrival
    return summary_of(static_cast<std::int64_t>(samples.size()), sum,
                      [&](std::int64_t rank) { return samples[static_cast<std::size_t>(rank)]; });
}

Summary summarise_ms(std::vector<TimeSamples>& samples) {
    std::sort(samples.begin(), samples.end(), [](const TimeSamples& a, const TimeSamples& b) {
        return a.time != b.time ? a.time < b.time : a.count < b.count;
    });
    std::int64_t count = 0;
    double sum_ms = 0.0;
    for (const TimeSamples& s : samples) {
        KVSIM_CHECK(s.count > 0, "{} samples of {} ps", s.count, s.time.value());
        sum_ms += to_ms(s.time) * static_cast<double>(s.count);
        count += s.count;
    }
    auto group = samples.begin();
    std::int64_t before = 0;  // samples in the groups before `group`
    return summary_of(count, sum_ms, [&](std::int64_t rank) {
        if (rank < before) {  // the upper neighbour of one percentile can lie above the lower one of the next
            group = samples.begin();
            before = 0;
        }
        while (rank >= before + group->count) before += (group++)->count;
        return to_ms(group->time);
    });
}

}  // namespace kvsim
