#include "kernels/calibrate/counters.hpp"

#include <cuda.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>
#include <fmt/format.h>

#include <map>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/launch.hpp"
#include "sim/base/check.hpp"

namespace kvsim::calibrate {
namespace {

// The runtime hides its driver context; asking for the entry point avoids linking libcuda, which only
// machines with a driver have.
CUcontext current_context() {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    KVSIM_CUDA_CALL(
        cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &entry, 4000, cudaEnableDefault, &found));
    CUcontext context = nullptr;
    if (found != cudaDriverEntryPointSuccess ||
        reinterpret_cast<CUresult (*)(CUcontext*)>(entry)(&context) != CUDA_SUCCESS || context == nullptr) {
        throw CuptiError("no current CUDA context to profile");
    }
    return context;
}

// Asked only after cuptiProfilerInitialize.
std::string chip_name() {
    int device = 0;
    KVSIM_CUDA_CALL(cudaGetDevice(&device));
    KVSIM_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, params);
    params.deviceIndex = static_cast<std::size_t>(device);
    KVSIM_CUPTI_CALL(cuptiDeviceGetChipName(&params));
    return params.pChipName;
}

std::string range_name(std::size_t index) {
    return fmt::format("r{}", index);
}

}  // namespace

CounterSession::CounterSession() {
    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, initialize);
    KVSIM_CUPTI_CALL(cuptiProfilerInitialize(&initialize));
    try {
        const std::string chip = chip_name();
        metrics_.emplace(chip);
        if (metrics_->passes() != 1) {
            throw CuptiError(
                fmt::format("the counters need {} passes on {}, but only one sees the same write-backs",
                            metrics_->passes(), chip));
        }
        configure();
    } catch (...) {
        close();
        throw;
    }
}

CounterSession::~CounterSession() {
    close();
}

void CounterSession::configure() {
    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, enable);
    enable.ctx = current_context();
    KVSIM_CUPTI_CALL(cuptiRangeProfilerEnable(&enable));
    profiler_ = enable.pRangeProfilerObject;

    auto names = kMetricNames;  // CUPTI asks for a pointer to non-const
    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = profiler_;
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxNumOfRanges = kRangesPerSession;
    size.maxNumRangeTreeNodes = kRangesPerSession;
    KVSIM_CUPTI_CALL(cuptiRangeProfilerGetCounterDataSize(&size));
    counter_data_.resize(size.counterDataSize);

    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, image);
    image.pRangeProfilerObject = profiler_;
    image.counterDataSize = counter_data_.size();
    image.pCounterData = counter_data_.data();
    KVSIM_CUPTI_CALL(cuptiRangeProfilerCounterDataImageInitialize(&image));

    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, config);
    config.pRangeProfilerObject = profiler_;
    config.pConfig = metrics_->image().data();
    config.configSize = metrics_->image().size();
    config.pCounterDataImage = counter_data_.data();
    config.counterDataImageSize = counter_data_.size();
    config.range = CUPTI_UserRange;
    config.replayMode = CUPTI_UserReplay;  // one pass: nothing is ever replayed
    config.maxRangesPerPass = kRangesPerSession;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.passIndex = 0;
    config.targetNestingLevel = 1;
    KVSIM_CUPTI_CALL(cuptiRangeProfilerSetConfig(&config));

    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, start);
    start.pRangeProfilerObject = profiler_;
    KVSIM_CUPTI_CALL(cuptiRangeProfilerStart(&start));
}

void CounterSession::count(const std::function<void()>& work) {
    KVSIM_CHECK(ranges_ < kRangesPerSession, "a session takes {} ranges", kRangesPerSession);
    KVSIM_CUDA_CALL(cudaDeviceSynchronize());
    const std::string range = range_name(ranges_);
    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params, push);
    push.pRangeProfilerObject = profiler_;
    push.pRangeName = range.c_str();
    KVSIM_CUPTI_CALL(cuptiRangeProfilerPushRange(&push));
    work();
    KVSIM_CUDA_CALL(cudaDeviceSynchronize());
    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params, pop);
    pop.pRangeProfilerObject = profiler_;
    KVSIM_CUPTI_CALL(cuptiRangeProfilerPopRange(&pop));
    ++ranges_;
}

std::vector<MetricValues> CounterSession::finish() {
    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = profiler_;
    KVSIM_CUPTI_CALL(cuptiRangeProfilerStop(&stop));
    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = profiler_;
    KVSIM_CUPTI_CALL(cuptiRangeProfilerDecodeData(&decode));
    KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = counter_data_.data();
    info.counterDataImageSize = counter_data_.size();
    KVSIM_CUPTI_CALL(cuptiRangeProfilerGetCounterDataInfo(&info));
    if (decode.numOfRangeDropped != 0 || info.numTotalRanges != ranges_) {
        throw CuptiError(fmt::format("{} of {} counted ranges came back, {} were dropped",
                                     info.numTotalRanges, ranges_, decode.numOfRangeDropped));
    }
    // The image keeps its own order: ranges are matched by name.
    std::map<std::string, std::size_t> index_of;
    for (std::size_t i = 0; i < ranges_; ++i) {
        KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, range);
        range.pCounterDataImage = counter_data_.data();
        range.counterDataImageSize = counter_data_.size();
        range.rangeIndex = i;
        range.rangeDelimiter = "/";
        KVSIM_CUPTI_CALL(cuptiRangeProfilerCounterDataGetRangeInfo(&range));
        index_of[range.rangeName] = i;
    }
    std::vector<MetricValues> values;
    for (std::size_t i = 0; i < ranges_; ++i) {
        const auto found = index_of.find(range_name(i));
        if (found == index_of.end()) throw CuptiError(fmt::format("counted range {} did not come back", i));
        values.push_back(metrics_->evaluate(counter_data_, found->second));
    }
    return values;
}

void CounterSession::close() noexcept {
    if (profiler_ != nullptr) {
        KVSIM_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, disable);
        disable.pRangeProfilerObject = profiler_;
        cuptiRangeProfilerDisable(&disable);
        profiler_ = nullptr;
    }
    KVSIM_CUPTI_PARAMS(CUpti_Profiler_DeInitialize_Params, deinitialize);
    cuptiProfilerDeInitialize(&deinitialize);
}

std::string counters_refused() {
    try {
        CounterSession session;
        session.count([] { KVSIM_CUDA_CALL(launch_empty(nullptr)); });
        session.finish();
        return {};
    } catch (const CuptiError& error) {
        return error.what();
    }
}

}  // namespace kvsim::calibrate
