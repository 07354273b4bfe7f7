#include "kernels/calibrate/timing.hpp"

#include <algorithm>

namespace kvsim::calibrate {
namespace {

constexpr double kThrottledShare = 0.75;

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
    const int count = std::max(launches.sets, 8);
    launches.rotate(count, stream_);  // loads code and fills translation caches
    KVSIM_CUDA_CALL(cudaEventRecord(start_.get(), stream_));
    launches.rotate(count, stream_);
    KVSIM_CUDA_CALL(cudaEventRecord(stop_.get(), stream_));
    KVSIM_CUDA_CALL(cudaEventSynchronize(stop_.get()));
    float ms = 0.0f;
    KVSIM_CUDA_CALL(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
    return time_from_us(1e3 * static_cast<double>(ms) / count);
}

Time ReplayTimer::replay(cudaGraphExec_t graph) {
    KVSIM_CUDA_CALL(cudaEventRecord(start_.get(), stream_));
    KVSIM_CUDA_CALL(cudaGraphLaunch(graph, stream_));
    KVSIM_CUDA_CALL(cudaEventRecord(stop_.get(), stream_));
    KVSIM_CUDA_CALL(cudaEventSynchronize(stop_.get()));
    float ms = 0.0f;
    KVSIM_CUDA_CALL(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
    return time_from_us(1e3 * static_cast<double>(ms));
}

std::optional<ReplaySummary> ReplayTimer::batch(cudaGraphExec_t graph, int launches) {
    std::vector<Time> good;
    for (int i = 0; i < 2 * kReplaysPerBatch && static_cast<int>(good.size()) < kReplaysPerBatch; ++i) {
        const Time total = replay(graph);
        last_sm_mhz_ = clocks_.read().sm_mhz;
        highest_sm_mhz_ = std::max(highest_sm_mhz_, last_sm_mhz_.value_or(0));
        if (last_sm_mhz_ && *last_sm_mhz_ < kThrottledShare * highest_sm_mhz_) continue;
        good.push_back(Time(total.value() / launches));
    }
    if (static_cast<int>(good.size()) < kReplaysPerBatch) return std::nullopt;
    return summarise(std::move(good));
}

std::optional<Timing> ReplayTimer::time(const Launches& launches) {
    const int count = launches_per_graph(launches.sets, estimate(launches));
    const GraphExec graph = record(launches, count, stream_);
    for (int i = 0; i < kWarmUpReplays; ++i) replay(graph.get());

    std::optional<Timing> best;
    for (int i = 0; i < kMaxBatches && !(best && best->replays.settled()); ++i) {
        const std::optional<ReplaySummary> summary = batch(graph.get(), count);
        if (summary && (!best || summary->spread < best->replays.spread))
            best = Timing{*summary, count, last_sm_mhz_};
    }
    return best;
}

}  // namespace kvsim::calibrate
