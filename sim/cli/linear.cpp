// kvsim linear: one linear layer on one rank, by buffer length. Bytes, and what they take at the rates that
// the published recurrent kernel reaches: cold, as inside a step, and timed alone, where the L2 keeps what
// fits.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/traffic_linear.hpp"
#include "sim/base/error.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/options.hpp"
#include "sim/cli/table.hpp"
#include "sim/cost/tables/fitted_operators.hpp"
#include "sim/model/model.hpp"
#include "sim/model/rank.hpp"

namespace kvsim {
namespace {

constexpr std::int64_t kLongestBuffer = 4096;
constexpr Rotation kAlone = 1;  // one set of buffers, again and again

struct LinearOptions {
    FileOptions input;
    std::vector<std::int64_t> batches{1, 8, 32, 64, 128};
    std::vector<std::int64_t> lengths{1, 2, 4, 8, 16, 24, 32, 48, 64, 128};
    bool json = false;
};

// Averages over a cycle, per launch. A length of 1 is the recurrent form.
struct LayerPoint {
    std::int64_t batch = 0;
    std::int64_t length = 0;
    double bytes = 0.0;
    double cold_us = 0.0;
    double warm_us = 0.0;
    Source source = Source::kRoofline;
};

// All rows are at the same fill, from 0 to the flush at length - 1.
LinearWork launch(std::int64_t batch, std::int64_t length, std::int64_t fill) {
    const std::int64_t flushes = fill == length - 1 ? batch : 0;
    return {batch, batch, batch * fill, flushes, flushes * length};
}

LayerPoint point(const FittedOperators& operators, const LinearShape& shape, std::int64_t batch,
                 std::int64_t length) {
    LayerPoint p{batch, length};
    for (std::int64_t fill = 0; fill < length; ++fill) {
        LinearBytesWork work{shape, Form::kBuffered, launch(batch, length, fill), length, kColdL2};
        if (length == 1) {
            work.form = Form::kRecurrent;
            work.work = {batch, batch, 0, 0, 0};
        }
        const LinearTraffic traffic = linear_traffic(shape, work.form, work.work);
        p.bytes += static_cast<double>(traffic.total()) / static_cast<double>(length);
        const Estimate cold = operators.linear_bytes(work);
        work.rotation = kAlone;
        p.cold_us += to_us(cold.time) / static_cast<double>(length);
        p.warm_us += to_us(operators.linear_bytes(work).time) / static_cast<double>(length);
        p.source = cold.source;
    }
    return p;
}

// What a buffer takes off the recurrent form.
double saved(double recurrent, double buffered) {
    return 1.0 - buffered / recurrent;
}

nlohmann::ordered_json to_json(const Experiment& e, const LinearShape& shape,
                               const std::vector<LayerPoint>& points) {
    nlohmann::ordered_json json{{"model", e.model.name},
                                {"device", e.device.name},
                                {"tp", e.parallelism.tp},
                                {"k_heads", shape.k_heads},
                                {"v_heads", shape.v_heads},
                                {"state_bytes", state_bytes(shape)},
                                {"record_bytes", record_bytes(shape)}};
    json["points"] = nlohmann::ordered_json::array();
    for (const LayerPoint& p : points) {
        json["points"].push_back({{"batch", p.batch},
                                  {"buffer_length", p.length},
                                  {"bytes", p.bytes},
                                  {"cold_us", p.cold_us},
                                  {"warm_us", p.warm_us},
                                  {"source", kSourceNames[static_cast<std::size_t>(p.source)]}});
    }
    return json;
}

std::string to_table(const Experiment& e, const LinearShape& shape, const std::vector<LayerPoint>& points) {
    using enum TextTable::Align;
    TextTable table({{"batch"},
                     {"length"},
                     {"MB"},
                     {"less %"},
                     {"cold us"},
                     {"less %"},
                     {"warm us"},
                     {"less %"},
                     {"source", kLeft}});
    const auto less = [](double recurrent, double buffered) {
        return fmt::format("{:.1f}", 100.0 * saved(recurrent, buffered));
    };
    LayerPoint recurrent;
    for (const LayerPoint& p : points) {
        if (p.batch != recurrent.batch) recurrent = p;
        table.add_row({fmt::format("{}", p.batch), fmt::format("{}", p.length),
                       fmt::format("{:.2f}", p.bytes * 1e-6), less(recurrent.bytes, p.bytes),
                       fmt::format("{:.2f}", p.cold_us), less(recurrent.cold_us, p.cold_us),
                       fmt::format("{:.2f}", p.warm_us), less(recurrent.warm_us, p.warm_us),
                       fmt::format("{}, bytes", kSourceNames[static_cast<std::size_t>(p.source)])});
    }
    return fmt::format(
        "{} on {}, TP {}: one linear layer of {} key and {} value heads, averages over a cycle per launch\n"
        "{:.1f} MiB of state per 128 requests, {:.0f} MiB of L2\n"
        "times: these bytes at the rates of the published recurrent kernel; `explain` has those of our "
        "own\n\n{}",
        e.model.name, e.device.name, e.parallelism.tp, shape.k_heads, shape.v_heads,
        static_cast<double>(128 * state_bytes(shape)) / (1 << 20),
        static_cast<double>(e.device.l2.value()) / (1 << 20), table.str());
}

ExitCode linear(const LinearOptions& options) {
    const Experiment e = load_experiment(options.input);
    const ModelSpec rank = rank_model(e.model, e.parallelism);
    const LinearMixer* mixer = linear_mixer(rank);
    if (mixer == nullptr) throw_mistake({}, "model", fmt::format("{} has no linear layers", e.model.name));
    const LinearShape shape = linear_shape(*mixer, e.linear.state);
    const FittedOperators operators = load_fitted_operators(e.device, e.profile_dir);
    std::vector<LayerPoint> points;
    for (const std::int64_t batch : options.batches) {
        points.push_back(point(operators, shape, batch, 1));
        for (const std::int64_t length : options.lengths) {
            if (length > 1) points.push_back(point(operators, shape, batch, length));
        }
    }
    if (options.json) {
        fmt::print("{}\n", to_json(e, shape, points).dump(2));
    } else {
        fmt::print("{}", to_table(e, shape, points));
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_linear(CLI::App& app) {
    const auto options = std::make_shared<LinearOptions>();
    add_file_options(app, options->input, "Experiment (YAML) of the model, GPU, ranks and state format");
    app.add_option("--batch", options->batches, "Requests (default: 1, 8, 32, 64, 128)")
        ->delimiter(',')
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    app.add_option("--lengths", options->lengths, "Buffer lengths; 1, the recurrent form, is always shown")
        ->delimiter(',')
        ->check(CLI::Range(std::int64_t{1}, kLongestBuffer));
    app.add_flag("--json", options->json, "Print JSON");
    return [options](std::span<const std::string>) { return linear(*options); };
}

}  // namespace kvsim
