// Times launches: replays of a CUDA graph that holds many of them.
#pragma once

#include <functional>

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
    ReplayBatch batch;  // times per launch
    int launches = 0;   // of one graph
};

// Rule: two warm-up replays, then up to three batches of nine. The first batch that settles
// (replay_rule.hpp) with clocks that nothing held down counts, else the best of the three; its limit is
// recorded, and no replay is dropped. Clocks are read halfway through each replay: between replays the GPU
// idles, and its limit is gone.
class ReplayTimer {
  public:
    ReplayTimer(const ClockReader& clocks, cudaStream_t stream);

    Timing time(const Launches& launches);

    int highest_sm_mhz() const { return highest_sm_mhz_; }

  private:
    struct Replay {
        Time total;
        Clocks clocks;
    };

    Time estimate(const Launches& launches);
    Replay replay(cudaGraphExec_t graph, Time expected);
    ReplayBatch batch(cudaGraphExec_t graph, int launches, Time expected);

    const ClockReader& clocks_;
    cudaStream_t stream_;
    Event start_, stop_;
    int highest_sm_mhz_ = 0;
};

}  // namespace kvsim::calibrate
