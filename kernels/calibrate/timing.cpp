#include "kernels/calibrate/timing.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace kvsim::calibrate {
namespace {

constexpr int kEstimateLaunches = 8;

GraphExec record(const Launches& launches, int count, cudaStream_t stream) {
    KVSIM_CUDA_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t captured = nullptr;
    try {
        launches.rotate(count, stream);
    } catch (...) {
        cudaStreamEndCapture(stream, &captured);
        const Graph discarded(captured);
        throw;
    }
    KVSIM_CUDA_CALL(cudaStreamEndCapture(stream, &captured));
    const Graph graph(captured);
    cudaGraphExec_t executable = nullptr;
    KVSIM_CUDA_CALL(cudaGraphInstantiate(&executable, graph.get(), 0));
    GraphExec owner(executable);
    KVSIM_CUDA_CALL(cudaGraphUpload(executable, stream));
    return owner;
}

}  // namespace

ReplayTimer::ReplayTimer(const ClockReader& clocks, cudaStream_t stream)
    : clocks_(clocks), stream_(stream), start_(make_event()), stop_(make_event()) {}

Time ReplayTimer::estimate(const Launches& launches) {
    launches.rotate(kEstimateLaunches, stream_);  // loads code and fills translation caches
    KVSIM_CUDA_CALL(cudaEventRecord(start_.get(), stream_));
    launches.rotate(kEstimateLaunches, stream_);
    KVSIM_CUDA_CALL(cudaEventRecord(stop_.get(), stream_));
    KVSIM_CUDA_CALL(cudaEventSynchronize(stop_.get()));
    float ms = 0.0f;
    KVSIM_CUDA_CALL(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
    return time_from_us(1e3 * static_cast<double>(ms) / kEstimateLaunches);
}

ReplayTimer::Replay ReplayTimer::replay(cudaGraphExec_t graph, Time expected) {
    KVSIM_CUDA_CALL(cudaEventRecord(start_.get(), stream_));
    KVSIM_CUDA_CALL(cudaGraphLaunch(graph, stream_));
    KVSIM_CUDA_CALL(cudaEventRecord(stop_.get(), stream_));
    std::this_thread::sleep_for(std::chrono::duration<double>(0.5 * to_seconds(expected)));
    const Clocks clocks = clocks_.read();
    KVSIM_CUDA_CALL(cudaEventSynchronize(stop_.get()));
    float ms = 0.0f;
    KVSIM_CUDA_CALL(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
    highest_sm_mhz_ = std::max(highest_sm_mhz_, clocks.sm_mhz.value_or(0));
    return {time_from_us(1e3 * static_cast<double>(ms)), clocks};
}

ReplayBatch ReplayTimer::batch(cudaGraphExec_t graph, int launches, Time expected) {
    std::vector<Time> times;
    std::vector<Clocks> clocks;
    for (int i = 0; i < kReplaysPerBatch; ++i) {
        const Replay one = replay(graph, expected);
        times.push_back(Time(one.total.value() / launches));
        clocks.push_back(one.clocks);
    }
    return {summarise(std::move(times)), slowest(clocks)};
}

Timing ReplayTimer::time(const Launches& launches) {
    const Time launch = estimate(launches);
    const int count = launches_per_graph(launches.sets, launch);
    const GraphExec graph = record(launches, count, stream_);
    Time expected = launch * count;
    for (int i = 0; i < kWarmUpReplays; ++i) expected = replay(graph.get(), expected).total;

    ReplayBatch best = batch(graph.get(), count, expected);
    for (int i = 1; i < kMaxBatches && !best.good(); ++i) {
        const ReplayBatch next = batch(graph.get(), count, expected);
        if (better(next, best)) best = next;
    }
    return {best, count};
}

}  // namespace kvsim::calibrate
