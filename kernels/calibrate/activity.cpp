#include "kernels/calibrate/activity.hpp"

#include <cupti.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/replay_rule.hpp"

namespace kvsim::calibrate {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kBufferAlignment = 8;  // of activity records
constexpr std::int64_t kPicosecondsPerNanosecond = 1000;

// CUPTI's callbacks carry no user pointer and may come from a thread of its own, so what they fill must be
// reachable from here.
struct Durations {
    std::mutex mutex;
    std::vector<Time> values;
    std::size_t untimed = 0;  // records whose timestamps could not be taken
    std::size_t dropped = 0;  // records that found no buffer
};
Durations& durations() {
    static Durations instance;
    return instance;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
    *size = *buffer != nullptr ? kBufferBytes : 0;
    *max_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                          std::size_t valid_bytes) {
    const std::lock_guard lock(durations().mutex);
    std::size_t dropped = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        durations().dropped += dropped;
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        if (kernel->end <= kernel->start) {  // timestamps that could not be taken are zero
            ++durations().untimed;
            continue;
        }
        const auto ns = static_cast<std::int64_t>(kernel->end - kernel->start);
        durations().values.push_back(Time(ns * kPicosecondsPerNanosecond));
    }
    std::free(buffer);
}

}  // namespace

ActivityRecorder::ActivityRecorder() {
    KVSIM_CUPTI_CALL(cuptiActivityRegisterCallbacks(give_buffer, take_buffer));
    KVSIM_CUPTI_CALL(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
}

ActivityRecorder::~ActivityRecorder() {
    cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

Time ActivityRecorder::median_duration(int kernels, const std::function<void()>& work) {
    // What ran before belongs to others.
    KVSIM_CUDA_CALL(cudaDeviceSynchronize());
    KVSIM_CUPTI_CALL(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    {
        const std::lock_guard lock(durations().mutex);
        durations().values.clear();
        durations().untimed = durations().dropped = 0;
    }
    work();
    KVSIM_CUDA_CALL(cudaDeviceSynchronize());
    KVSIM_CUPTI_CALL(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    const std::lock_guard lock(durations().mutex);
    const Durations& d = durations();
    if (d.values.size() != static_cast<std::size_t>(kernels) || d.untimed + d.dropped > 0) {
        throw CuptiError(
            fmt::format("of {} kernels, {} activity records came back, {} without times, {} were dropped",
                        kernels, d.values.size() + d.untimed, d.untimed, d.dropped));
    }
    return summarise(d.values).median;
}

}  // namespace kvsim::calibrate
