// Times launches: replays of a CUDA graph that holds many of them.
#pragma once

#include <functional>
#include <optional>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/device_info.hpp"
#include "kernels/calibrate/replay_rule.hpp"

namespace kvsim::calibrate {

// The launch of a case on each of its rotated sets of buffers, 0..sets-1. Valid while the bench that made it
// lives and prepares no other case.
struct Launches {
    int sets = 1;
    std::function<cudaError_t(int set, cudaStream_t stream)> enqueue;

    // `count` launches over the sets in turn.
    void rotate(int count, cudaStream_t stream) const {
        for (int i = 0; i < count; ++i) KVSIM_CUDA_CALL(enqueue(i % sets, stream));
    }
};

struct Timing {
    ReplaySummary replays;  // times per launch
    int launches = 0;       // of one graph
    std::optional<int> sm_mhz;
};

// Rule: two warm-up replays, then batches of nine; the first batch that settles (replay_rule.hpp) counts,
// else the one with the smallest spread of three. A replay right after which the SM clock is below three
// quarters of the highest clock seen in this run is dropped and repeated; a batch that cannot collect nine
// good replays in eighteen does not count.
class ReplayTimer {
  public:
    ReplayTimer(const ClockReader& clocks, cudaStream_t stream);

    // Empty when the GPU was throttled throughout.
    std::optional<Timing> time(const Launches& launches);

    int highest_sm_mhz() const { return highest_sm_mhz_; }

  private:
    Time estimate(const Launches& launches);
    Time replay(cudaGraphExec_t graph);
    std::optional<ReplaySummary> batch(cudaGraphExec_t graph, int launches);

    const ClockReader& clocks_;
    cudaStream_t stream_;
    Event start_, stop_;
    int highest_sm_mhz_ = 0;
    std::optional<int> last_sm_mhz_;
};

}  // namespace kvsim::calibrate
