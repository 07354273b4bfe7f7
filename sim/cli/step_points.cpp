#include "sim/cli/step_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/file.hpp"
#include "sim/base/text.hpp"
#include "sim/cli/decode_step.hpp"
#include "sim/cli/setup.hpp"
#include "sim/cost/profile.hpp"
#include "sim/cost/tables/csv_table.hpp"

namespace kvsim {

namespace {

constexpr int kBufferLength = 16;
// As explain takes them: bytes and FLOPs stay within 64 bits.
constexpr std::int64_t kMostSequences = std::int64_t{1} << 20;
constexpr std::int64_t kMostCachedTokens = std::int64_t{1} << 40;

std::vector<StepPoint> published_points(const CsvTable& csv) {
    std::vector<StepPoint> points;
    for (std::size_t i = 0; i < csv.rows(); ++i) {
        points.push_back({std::string(csv.text(i, "device")), std::string(csv.text(i, "model")),
                          std::string(csv.text(i, "metric")), "", csv.positive_integer(i, "batch"),
                          csv.positive_integer(i, "context"), csv.positive(i, "value"), 0, csv.place(i)});
    }
    return points;
}

constexpr std::array<std::string_view, 5> kVariants{"packed", "packed_2s", "mid", "flush", "mixed"};

// `none`, the step without its linear operator, is no step.
std::vector<StepPoint> whole_steps(const CsvTable& csv, std::vector<Mistake>& mistakes) {
    std::vector<StepPoint> points;
    for (std::size_t i = 0; i < csv.rows(); ++i) {
        const std::string_view variant = csv.text(i, "variant");
        if (variant == "none") continue;
        if (std::ranges::find(kVariants, variant) == kVariants.end()) {
            mistakes.push_back(profile_mistake(csv.place(i).file, csv.place(i).line, "variant",
                                               fmt::format("expected none, {}, got `{}`{}", join(kVariants),
                                                           variant, suggestion(variant, kVariants))));
            continue;
        }
        points.push_back({"h200", std::string(csv.text(i, "model")), "decode_us", std::string(variant),
                          csv.positive_integer(i, "batch"), csv.positive_integer(i, "context"),
                          csv.positive(i, "step_us"), csv.positive_integer(i, "sm_mhz"), csv.place(i)});
    }
    return points;
}

// The step of a variant: all rows at one fill, all at the flush, or even phases.
StepShape shape_of(const StepPoint& point) {
    LinearServing linear;
    const bool buffered = point.variant == "mid" || point.variant == "flush" || point.variant == "mixed";
    if (buffered) linear = {.form = Form::kBuffered, .buffer_length = kBufferLength};
    StepShape shape = decode_step(linear, point.batch, point.context).shape;
    if (point.variant == "mid" || point.variant == "flush") {
        const std::int64_t fill = point.variant == "mid" ? kBufferLength / 2 : kBufferLength - 1;
        const std::int64_t flushes = point.variant == "flush" ? point.batch : 0;
        shape[Form::kBuffered] = {point.batch, point.batch, point.batch * fill, flushes,
                                  flushes * (fill + 1)};
    }
    return shape;
}

std::string largest_term(const StepCost& cost, const StepShape& shape) {
    std::array<double, kCostFamilyCount> deviation{};
    for (const OperatorCost& op : cost.explain(shape)) {
        if (op.critical) deviation[static_cast<std::size_t>(op.family)] += to_us(op.time) * op.uncertainty;
    }
    const auto largest = std::max_element(deviation.begin(), deviation.end()) - deviation.begin();
    return std::string(kCostFamilyNames[static_cast<std::size_t>(largest)]);
}

StepPrediction of_step(const StepPoint& point, const StepCost& cost, const StepShape& shape, double unit_us) {
    const StepPrice price = cost.price(shape);
    return {point, to_us(price.time) / unit_us, to_us(step_uncertainty(cost.explain(shape))) / unit_us,
            largest_term(cost, shape)};
}

// Of the decode kernels of linear attention, relative to the step.
double linear_deviation(const StepCost& cost, const StepShape& shape, Time step) {
    double us = 0.0;
    for (const OperatorCost& op : cost.explain(shape)) {
        if (op.family == CostFamily::kLinear) us += to_us(op.time) * op.uncertainty;
    }
    return us / to_us(step);
}

// Recurrent over buffered. Only what the two steps do not share makes the ratio uncertain: their decode
// kernels, each with a law of its own.
StepPrediction gain(const StepPoint& point, const StepCost& cost) {
    StepPoint buffered = point;
    buffered.variant = "mixed";
    const StepShape before = shape_of(point);
    const StepShape after = shape_of(buffered);
    const Time before_time = cost.price(before).time;
    const Time after_time = cost.price(after).time;
    const double ratio = before_time / after_time;
    const double deviation =
        std::hypot(linear_deviation(cost, before, before_time), linear_deviation(cost, after, after_time));
    return {point, ratio, ratio * deviation, "linear"};
}

}  // namespace

std::vector<StepPoint> load_step_points(const std::string& file) {
    const std::string text = read_csv_file(file);
    const std::string_view header = std::string_view(text).substr(0, text.find('\n'));
    std::vector<Mistake> mistakes;
    std::vector<StepPoint> points;
    if (header.find("variant") != std::string_view::npos) {
        points = whole_steps(
            CsvTable(file,
                     {"model", "batch", "context", "variant", "step_us", "step_us_min", "sm_mhz", "power_w"},
                     mistakes),
            mistakes);
    } else {
        points = published_points(
            CsvTable(file, {"device", "model", "metric", "batch", "context", "value", "source"}, mistakes));
    }
    for (const StepPoint& p : points) {
        if (p.batch > kMostSequences || p.context > kMostCachedTokens / p.batch)
            mistakes.push_back(profile_mistake(
                p.place.file, p.place.line, "batch",
                fmt::format("expected at most {} sequences, and {} cached tokens in all, got {} x {}",
                            kMostSequences, kMostCachedTokens, p.batch, p.context)));
    }
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
    return points;
}

StepPrediction predict(const StepPoint& point, const std::string& experiment,
                       const std::vector<Override>& overrides, LinearKernels kernels) {
    std::vector<Override> all = overrides;
    all.emplace_back("model", point.model);
    all.emplace_back("device", point.device);
    Experiment e = load_experiment(experiment, all);
    e.engine.steps.linear_kernels = kernels;
    if (point.metric == "decode_us") {
        // One graph after another, without an engine; on one stream unless the variant has two.
        e.engine.steps.host_gap = Time();
        e.engine.steps.overlapped[static_cast<std::size_t>(Overlap::kGateProjection)] =
            point.variant == "packed_2s";
    }
    const StepCost cost = make_step_cost(e);
    if (point.metric == "decode_us") return of_step(point, cost, shape_of(point), 1.0);
    if (point.metric == "tpot_ms") return of_step(point, cost, shape_of(point), 1e3);
    if (point.metric == "ttft_ms") return of_step(point, cost, prefill_step(point.context, 0), 1e3);
    if (point.metric == "buffer_gain") return gain(point, cost);
    throw ConfigError(profile_mistake(point.place.file, point.place.line, "metric",
                                      fmt::format("unknown value `{}`", point.metric)));
}

}  // namespace kvsim
