// How many launches a timed graph holds, and when its replays are good enough. Pure host code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/profile_columns.hpp"
#include "sim/base/units.hpp"

namespace kvsim::calibrate {

inline constexpr int kWarmUpReplays = 2;
inline constexpr int kReplaysPerBatch = 9;
inline constexpr int kMaxBatches = 3;
inline constexpr double kSettledSpread = 0.01;

// Clocks at one moment; empty where the driver does not say.
struct Clocks {
    std::optional<int> sm_mhz, memory_mhz;
    std::optional<ClockLimit> limit;
    friend bool operator==(const Clocks&, const Clocks&) = default;
};

// What NVML's clock event reasons (nvmlClocksEventReason*, nvml.h) say that holds clocks down. Idle clocks
// and clocks that a user has set are no limit.
ClockLimit clock_limit(std::uint64_t nvml_reasons);

// The slowest of several moments, quantity by quantity.
Clocks slowest(std::span<const Clocks> moments);

// Launches of one graph over `sets` rotated sets, given a rough time of one launch. A multiple of `sets`, so
// that every set is used equally often; at least one rotation and 20 launches, and about 4 ms, so that the
// two events around the graph (a few us) weigh little; after the first rotation no more than about 30 ms.
int launches_per_graph(int sets, Time launch);

// Order statistics of replays. Quantiles interpolate linearly between order statistics (type 7 of Hyndman and
// Fan).
struct ReplaySummary {
    Time median, min, max;
    double spread = 0.0;  // (P75 - P25) / median
    int replays = 0;

    bool settled() const { return spread < kSettledSpread; }
};
ReplaySummary summarise(std::vector<Time> replays);  // at least one

// Replays of one graph, and the slowest clocks that were seen while they ran.
struct ReplayBatch {
    ReplaySummary replays;
    Clocks clocks;

    bool limited() const { return clocks.limit.value_or(ClockLimit::kNone) != ClockLimit::kNone; }
    bool good() const { return replays.settled() && !limited(); }
};
// Whether `a` is to be believed rather than `b`: clocks that nothing held down first, then a smaller spread.
bool better(const ReplayBatch& a, const ReplayBatch& b);

}  // namespace kvsim::calibrate
