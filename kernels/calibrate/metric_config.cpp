#include "kernels/calibrate/metric_config.hpp"

#include <cupti.h>
#include <fmt/format.h>

#include <cmath>

namespace kvsim::calibrate {
namespace {

Bytes whole_bytes(double value) {
    return Bytes(std::llround(value));
}

void release(CUpti_Profiler_Host_Object* host) {
    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, params);
    params.pHostObject = host;
    cuptiProfilerHostDeinitialize(&params);
}

}  // namespace

void cupti_check(CUptiResult result, const char* call, const char* file, int line) {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    if (cuptiGetResultString(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown result";
    throw CuptiError(fmt::format("{}:{}: {}: {} ({})", file, line, call, text, static_cast<int>(result)));
}

std::vector<std::string> supported_chips() {
    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_GetSupportedChips_Params, params);
    KVSIM_CUPTI_CALL(cuptiProfilerHostGetSupportedChips(&params));
    return {params.ppChipNames, params.ppChipNames + params.numChips};
}

MetricConfig::MetricConfig(const std::string& chip, std::span<const char* const> metrics) {
    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, params);
    params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    params.pChipName = chip.c_str();
    KVSIM_CUPTI_CALL(cuptiProfilerHostInitialize(&params));
    host_ = params.pHostObject;
    try {
        configure(chip, metrics);
    } catch (...) {
        release(host_);
        throw;
    }
}

MetricConfig::~MetricConfig() {
    release(host_);
}

void MetricConfig::configure(const std::string& chip, std::span<const char* const> metrics) {
    for (const char* metric : metrics) {
        KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params, params);
        params.pHostObject = host_;
        params.pMetricName = metric;
        if (cuptiProfilerHostGetMetricProperties(&params) != CUPTI_SUCCESS) {
            throw CuptiError(fmt::format("{} has no metric {}", chip, metric));
        }
    }
    // All at once: metrics that are added one by one get a pass each.
    std::vector<const char*> names(metrics.begin(), metrics.end());
    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
    add.pHostObject = host_;
    add.ppMetricNames = names.data();
    add.numMetrics = names.size();
    KVSIM_CUPTI_CALL(cuptiProfilerHostConfigAddMetrics(&add));

    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = host_;
    KVSIM_CUPTI_CALL(cuptiProfilerHostGetConfigImageSize(&size));
    image_.resize(size.configImageSize);

    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
    image.pHostObject = host_;
    image.configImageSize = image_.size();
    image.pConfigImage = image_.data();
    KVSIM_CUPTI_CALL(cuptiProfilerHostGetConfigImage(&image));

    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, passes);
    passes.configImageSize = image_.size();
    passes.pConfigImage = image_.data();
    KVSIM_CUPTI_CALL(cuptiProfilerHostGetNumOfPasses(&passes));
    passes_ = passes.numOfPasses;
}

MetricValues MetricConfig::evaluate(std::span<const std::uint8_t> counter_data, std::size_t index) const {
    std::array<double, kMetricNames.size()> values{};
    auto names = kMetricNames;  // CUPTI asks for a pointer to non-const
    KVSIM_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, params);
    params.pHostObject = host_;
    params.pCounterDataImage = counter_data.data();
    params.counterDataImageSize = counter_data.size();
    params.rangeIndex = index;
    params.ppMetricNames = names.data();
    params.numMetrics = names.size();
    params.pMetricValues = values.data();
    KVSIM_CUPTI_CALL(cuptiProfilerHostEvaluateToGpuValues(&params));
    for (const double value : values) {
        if (!std::isfinite(value))
            throw CuptiError(fmt::format("range {} has a counter without a value", index));
    }
    return {whole_bytes(values[0]), whole_bytes(values[1]), whole_bytes(values[2])};
}

}  // namespace kvsim::calibrate
