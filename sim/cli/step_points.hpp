// Whole steps that others measured, and what the cost model says of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/config/experiment.hpp"

namespace kvsim {

struct StepPoint {
    std::string device, model, metric;  // decode_us, tpot_ms, ttft_ms, buffer_gain
    std::string variant;                // of a decode step: packed, packed_2s, mid, flush, mixed
    std::int64_t batch = 1;
    std::int64_t context = 0;
    double measured = 0.0;
    std::int64_t sm_mhz = 0;  // lowest clock during the measurement; 0: not recorded
    Place place;
};

struct StepPrediction {
    StepPoint point;
    double predicted = 0.0;
    double uncertainty = 0.0;  // of predicted, one standard deviation
    std::string largest;       // family of operators that most of it comes from
    double error() const { return predicted / point.measured - 1.0; }
};

// Reads either kind of table. Throws ConfigError with every mistake.
//   published points: device, model, metric, batch, context, value, source
//   whole decode steps: model, batch, context, variant, step_us, ... (of one H200, no host work between
//   steps)
std::vector<StepPoint> load_step_points(const std::string& file);

// `experiment` lends the engine; model and device are the point's. `kernels` are those of linear attention;
// buffers hold 16 records. Points that are not of an experiment of one GPU throw ConfigError.
StepPrediction predict(const StepPoint& point, const std::string& experiment,
                       const std::vector<Override>& overrides, LinearKernels kernels);

}  // namespace kvsim
