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

ClockLimit clock_limit(std::uint64_t nvml_reasons) {
    constexpr std::uint64_t kSwPowerCap = 0x4, kHwSlowdown = 0x8, kSwThermal = 0x20, kHwThermal = 0x40,
                            kHwPowerBrake = 0x80;
    if ((nvml_reasons & (kHwSlowdown | kSwThermal | kHwThermal | kHwPowerBrake)) != 0)
        return ClockLimit::kSlowdown;
    return (nvml_reasons & kSwPowerCap) != 0 ? ClockLimit::kPower : ClockLimit::kNone;
}

Clocks slowest(std::span<const Clocks> moments) {
    Clocks result;
    for (const Clocks& c : moments) {
        if (c.sm_mhz) result.sm_mhz = std::min(*c.sm_mhz, result.sm_mhz.value_or(*c.sm_mhz));
        if (c.memory_mhz)
            result.memory_mhz = std::min(*c.memory_mhz, result.memory_mhz.value_or(*c.memory_mhz));
        if (c.limit) result.limit = std::max(*c.limit, result.limit.value_or(*c.limit));
    }
    return result;
}

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

bool better(const ReplayBatch& a, const ReplayBatch& b) {
    if (a.limited() != b.limited()) return b.limited();
    return a.replays.spread < b.replays.spread;
}

}  // namespace kvsim::calibrate
