#include "kernels/calibrate/replay_rule.hpp"

#include "sim/base/percentile.hpp"

#include <algorithm>
#include <cmath>

namespace kvsim::calibrate {
namespace {

constexpr std::int64_t kMinLaunches = 20;
const Time kMinGraph = time_from_us(4'000.0);
const Time kMaxGraph = time_from_us(30'000.0);

Time quantile(const std::vector<Time>& sorted, double q) {
    return Time(std::llround(percentile(static_cast<std::int64_t>(sorted.size()), q, [&](std::int64_t rank) {
        return static_cast<double>(sorted[static_cast<std::size_t>(rank)].value());
    })));
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

}  // namespace

int launches_per_graph(int sets, Time launch) {
    KVSIM_CHECK(sets >= 1 && launch > Time(0), "{} sets of {} ps", sets, launch.value());
    const std::int64_t rotation = launch.value() * sets;
    const std::int64_t wanted = std::max(ceil_div(kMinLaunches, sets), ceil_div(kMinGraph.value(), rotation));
    const std::int64_t allowed = std::max<std::int64_t>(1, kMaxGraph.value() / rotation);
    return static_cast<int>(std::min(wanted, allowed)) * sets;
}

ReplaySummary summarise(std::vector<Time> replays) {
    KVSIM_CHECK(!replays.empty(), "no replays");
    std::sort(replays.begin(), replays.end());
    ReplaySummary s{quantile(replays, 0.5), replays.front(), replays.back()};
    s.spread = (quantile(replays, 0.75) - quantile(replays, 0.25)) / s.median;
    s.replays = static_cast<int>(replays.size());
    return s;
}

}  // namespace kvsim::calibrate
