// How many launches a timed graph holds, and when its replays are good enough. Pure host code.
#pragma once

#include <span>
#include <vector>

#include "sim/base/units.hpp"

namespace kvsim::calibrate {

inline constexpr int kWarmUpReplays = 2;
inline constexpr int kReplaysPerBatch = 9;
inline constexpr int kMaxBatches = 3;
inline constexpr double kSettledSpread = 0.01;

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

}  // namespace kvsim::calibrate
