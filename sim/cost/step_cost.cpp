#include "sim/cost/step_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/operators.hpp"

namespace kvsim {

struct StepCost::Impl {
    OperatorWalk walk;
    DeviceSpec device;
    ProfileFit fit;
    double node_us = 0.0;
    double peak_bf16_flop_per_us = 0.0;
    double peak_fp32_flop_per_us = 0.0;
    double peak_bytes_per_us = 0.0;
    std::array<const LinearFit*, kFormCount> kernels{};  // into fit; null where the profile has none

    Impl(const ModelSpec& model, DeviceSpec d, ProfileFit f, StateFormat state)
        : walk(model, state),
          device(std::move(d)),
          fit(std::move(f)),
          node_us(to_us(fit.empty_node)),
          peak_bf16_flop_per_us(device.peak_bf16.value() * 1e-6),
          peak_fp32_flop_per_us(device.peak_fp32.value() * 1e-6),
          peak_bytes_per_us(device.peak_bandwidth.value() * 1e-6) {
        for (const LinearFit& kernel : fit.linear) {
            if (kernel.matches(walk.linear_layer(), kernel.form))
                kernels[static_cast<std::size_t>(kernel.form)] = &kernel;
        }
        const double copy_bytes_per_us = fit.copy.law.gb_per_s * 1e3;
        if (copy_bytes_per_us > peak_bytes_per_us) {
            refuse(fmt::format("copy bandwidth of {:.0f} GB/s is above the peak of device {}, {:.0f} GB/s",
                               fit.copy.law.gb_per_s, device.name, peak_bytes_per_us * 1e-3));
        }
    }

    [[noreturn]] void refuse(std::string message) const {
        throw ConfigError(profile_mistake(fit.origin, 0, "", std::move(message)));
    }

    // At the peak of the units that do the work: the recurrence runs on the CUDA cores, in fp32; with a ring,
    // products of states and records are the tensor cores'.
    double compute_us(const OperatorWork& op) const {
        const bool cuda_cores = op.linear != nullptr && !has_ring(op.form);
        return static_cast<double>(op.flops) / (cuda_cores ? peak_fp32_flop_per_us : peak_bf16_flop_per_us);
    }

    // One operator of one layer.
    TimedSource time(const OperatorWork& op) const {
        const auto bytes = static_cast<double>(op.total_bytes);
        if (op.linear == nullptr) {
            // The copy law is at or above bytes / peak, as the constructor has made sure.
            const double memory_us = fit.copy.law.time_us(bytes);
            const double launch_us = static_cast<double>(op.launches) * node_us;
            return {time_from_us(launch_us + std::max(memory_us, compute_us(op))), Source::kRoofline};
        }
        const LinearShape& shape = walk.linear_layer();
        const LinearFit* kernel = kernels[static_cast<std::size_t>(op.form)];
        if (kernel == nullptr) kernel = &fit.linear_fit(shape, op.form);  // says what is missing
        const TimedSource timed = fit.linear_time(*kernel, {shape, op.form, *op.linear});
        const double least_us = std::max(bytes / peak_bytes_per_us, compute_us(op));
        if (to_us(timed.time) < least_us) {
            refuse(
                fmt::format("kernel {}: {:.3f} us for {} rows is impossible on device {}, which needs {:.3f} "
                            "us at its peaks",
                            kernel->kernel, to_us(timed.time), op.linear->sequences, device.name, least_us));
        }
        return timed;
    }

    Bound bound(const OperatorWork& op, Time t) const {
        const double memory_us = static_cast<double>(op.total_bytes) / peak_bytes_per_us;
        if (std::max(memory_us, compute_us(op)) < 0.5 * to_us(t)) return Bound::kLaunch;
        return memory_us >= compute_us(op) ? Bound::kMemory : Bound::kCompute;
    }
};

StepCost::StepCost(ModelSpec model, DeviceSpec device, ProfileFit fit, StateFormat state)
    : impl_(std::make_unique<Impl>(model, std::move(device), std::move(fit), state)) {}
StepCost::~StepCost() = default;
StepCost::StepCost(StepCost&&) noexcept = default;
StepCost& StepCost::operator=(StepCost&&) noexcept = default;

StepPrice StepCost::price(const StepShape& shape) const {
    KVSIM_CHECK(shape.tokens() > 0, "a step without tokens");
    StepPrice price;
    impl_->walk(shape, [&](const OperatorWork& op) {
        const TimedSource timed = impl_->time(op);
        const Time total = timed.time * op.layers;
        price.time += total;
        price.time_by_source[static_cast<std::size_t>(timed.source)] += total;
        if (op.linear != nullptr) price.linear_time += total;
        for (std::size_t i = 0; i < op.bytes.size(); ++i) price.bytes[i] += op.bytes[i] * op.layers;
    });
    return price;
}

std::vector<OperatorCost> StepCost::explain(const StepShape& shape) const {
    KVSIM_CHECK(shape.tokens() > 0, "a step without tokens");
    std::vector<OperatorCost> list;
    impl_->walk(shape, [&](const OperatorWork& op) {
        const TimedSource timed = impl_->time(op);
        OperatorCost cost;
        cost.name = op.name;
        cost.count = op.layers;
        cost.launches = op.layers * op.launches;
        for (std::size_t i = 0; i < op.bytes.size(); ++i) cost.bytes[i] = op.bytes[i] * op.layers;
        cost.flops = Flops(op.flops * op.layers);
        cost.time = timed.time * op.layers;
        cost.bound = impl_->bound(op, timed.time);
        cost.source = timed.source;
        list.push_back(std::move(cost));
    });
    return list;
}

}  // namespace kvsim
