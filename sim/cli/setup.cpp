#include "sim/cli/setup.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <variant>

#include "sim/base/error.hpp"
#include "sim/cost/fit.hpp"
#include "sim/workload/synthetic.hpp"

namespace kvsim {
namespace {

std::int64_t mean_tokens(const ArrivalList& list) {
    std::int64_t sum = 0;
    for (const Arrival& arrival : list.arrivals) sum += arrival.prompt_tokens + arrival.output_tokens;
    const auto count = static_cast<std::int64_t>(list.arrivals.size());
    return count == 0 ? 1 : (sum + count - 1) / count;
}

}  // namespace

namespace {

// Decode kernels that were measured on the device itself, else those of the H200, scaled by peak bandwidth:
// nobody has measured ours elsewhere.
constexpr std::string_view kReferenceProfile = "h200";
constexpr Bandwidth kReferenceBandwidth(4.8e12);  // data sheet, as in configs/devices/h200.yaml

LinearKernelFits linear_kernels(const Experiment& experiment) {
    const std::filesystem::path folder = experiment.profile_dir;
    const std::string_view file =
        experiment.engine.steps.linear_kernels == LinearKernels::kOwn ? "fit.yaml" : "public_kernels.yaml";
    LinearKernelFits kernels;
    if (std::filesystem::exists(folder / file)) {
        kernels.fit = load_fit((folder / file).string());
    } else if (const auto reference = folder.parent_path() / kReferenceProfile / file;
               std::filesystem::exists(reference)) {
        kernels =
            scaled_to(load_fit(reference.string()), experiment.device.peak_bandwidth / kReferenceBandwidth);
    }
    const LinearServing& linear = experiment.linear;
    const int ring = ring_records(linear, experiment.engine.memory.draft_records);
    kernels.ring_capacity = ring > 0 ? ring : ring_capacity(linear);
    return kernels;
}

}  // namespace

StepCost make_step_cost(const Experiment& experiment) {
    // The device's own folder may be missing, and everything is on the roofline then; one that the user names
    // may not.
    const std::filesystem::path folder = experiment.profile_dir;
    if (!std::filesystem::is_directory(folder) && folder.filename() != experiment.device.profile)
        throw_mistake({}, "profile_dir", fmt::format("no such folder: {}", folder.string()));
    return StepCost(
        {experiment.model, experiment.parallelism, experiment.engine.steps, experiment.linear.state,
         load_fitted_operators(experiment.device, experiment.profile_dir), linear_kernels(experiment),
         experiment.serving.speculation.most_drafts(), experiment.linear.records});
}

std::int64_t mean_tokens_per_request(const Experiment& experiment) {
    struct Visitor {
        std::uint64_t seed;
        std::int64_t operator()(const SteadyWorkload& w) const {
            return w.context + 1;  // and the token of the step
        }
        std::int64_t operator()(const SyntheticWorkload& w) const {
            RequestDraws draws(w, seed);
            std::int64_t sum = 0;
            for (std::int64_t i = 0; i < w.requests; ++i) {
                const Arrival arrival = draws.request(Time());
                sum += arrival.prompt_tokens + arrival.output_tokens;
            }
            return (sum + w.requests - 1) / w.requests;
        }
        std::int64_t operator()(const TraceWorkload& w) const { return mean_tokens(read_trace(w, seed)); }
    };
    return std::visit(Visitor{experiment.seed}, experiment.workload);
}

double gib(Bytes bytes) {
    return static_cast<double>(bytes.value()) / (1 << 30);
}

std::string weights_misfit(const Experiment& e, const Capacity& capacity) {
    if (e.engine.memory.pool) {
        return fmt::format("a pool of {:.1f} GiB beside {:.1f} GiB of weights does not fit {} with {:.1f}",
                           gib(*e.engine.memory.pool), gib(capacity.weights), e.device.name,
                           gib(e.device.memory));
    }
    return fmt::format("{} does not fit {}: {:.1f} GiB of weights; {} may use {:.1f} of {:.1f} GiB",
                       e.model.name, e.device.name, gib(capacity.weights), e.engine.name,
                       gib(e.device.memory) * e.engine.memory.fraction, gib(e.device.memory));
}

std::string ranks(const Parallelism& p) {
    if (p.tp == 1) return "";
    std::string text = fmt::format(" (one rank of tp {}", p.tp);
    if (p.ep > 1)
        text += fmt::format(", ep {} by {}", p.ep, kExpertExchangeNames[static_cast<std::size_t>(p.experts)]);
    if (p.attention_dp > 1) text += fmt::format(", attention_dp {}", p.attention_dp);
    return text + ")";
}

Capacity solve_capacity(const Experiment& experiment, std::int64_t tokens_per_request) {
    return solve_capacity(rank_model(experiment.model, experiment.parallelism), experiment.device,
                          experiment.engine, experiment.linear, tokens_per_request,
                          experiment.parallelism.attention_dp);
}

}  // namespace kvsim
