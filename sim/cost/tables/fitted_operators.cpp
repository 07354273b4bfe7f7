#include "sim/cost/tables/fitted_operators.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "sim/base/check.hpp"
#include "sim/cost/tables/families.hpp"

namespace kvsim {

namespace {

// A pointwise or norm kernel of a few rows, as a node of a graph: 0.9 to 1.2 us on H100 (sglang pull request
// 24733).
constexpr double kSmallKernelUs = 1.0;
constexpr double kSmallKernelUncertainty = 0.3;
// Launch floors of a roofline where nothing was measured: a matrix product with K >= 2048 of cuBLAS takes 5
// us on H200, convolutions and attention no less than 2 us.
constexpr double kRooflineLaunchUs = 2.0;
// Of peak bandwidth and of peak rate that large kernels reach on every GPU of the tables.
constexpr double kAchievedBandwidth = 0.85;
constexpr double kAchievedRate = 0.7;

// What a roofline knows of a work: bytes, FLOPs and launches.
struct Roof {
    double bytes = 0.0;
    double flops = 0.0;
    MatrixFormat format = MatrixFormat::kBf16;
    double launches = 1.0;
};

Estimate to_estimate(const LawTime& t, double uncertainty, Source source) {
    return {time_from_us(t.us), uncertainty, source, t.regime};
}

}  // namespace

struct FittedOperators::Impl {
    DeviceSpec device;
    Gpu gpu;
    std::string origin;
    Families<OptionalFit> families;
    std::optional<PowerFit> power;

    Estimate roofline(const Roof& roof) const {
        const double memory = roof.bytes / (gpu.peak_bytes * kAchievedBandwidth);
        const double compute = roof.flops / (gpu.peak_flops(roof.format) * kAchievedRate);
        const double latency = kRooflineLaunchUs * roof.launches;
        return to_estimate(law_time(latency + std::max(memory, compute), latency, memory, compute),
                           kRooflineUncertainty, Source::kRoofline);
    }

    // `bytes` leave the GPU over its link; latency in launches.
    Estimate over_link(double bytes, double launches) const {
        const double link = device.link_bandwidth.value() * 1e-6;
        KVSIM_CHECK(link > 0.0, "{}: link_bandwidth unknown", device.name);
        const double transfer = bytes / (link * kAchievedBandwidth);
        const double latency = launches * kRooflineLaunchUs;
        return to_estimate(law_time(latency + transfer, latency, transfer, 0.0), kRooflineUncertainty,
                           Source::kRoofline);
    }

    template <class Law, class RoofOf>
    Estimate price(std::string_view name, const OptionalFit<Law>& fit, const typename Law::Work& work,
                   RoofOf&& roof) const {
        if (!fit) return roofline(roof());
        const LawTime t = fit->law.time(work, gpu);
        const Demand d = Law::demand(work);
        const double least = std::max(d.dram_bytes / gpu.peak_bytes, d.flops / gpu.peak_flops(d.format));
        // A rounded parameter may stand a hair above its bound.
        if (t.us < least * (1.0 - 1e-6)) {
            throw ConfigError(profile_mistake(
                origin, 0, "",
                fmt::format(
                    "{}: {:.3f} us is less than the {:.3f} us that {} needs for the work at its peak rates",
                    name, t.us, least, device.name)));
        }
        return to_estimate(t, fit->sigma[static_cast<std::size_t>(t.regime)],
                           fit->covers(work) ? Source::kFitted : Source::kExtrapolated);
    }

    void check_rates() const {
        for_each_family(
            [&](std::string_view name, const auto& slot) {
                if (!slot) return;
                using Law = typename std::decay_t<decltype(*slot)>::Law;
                for (const auto& p : kLawParameters<Law>) {
                    const double rate = slot->law.*(p.member);
                    if (p.name.starts_with("dram_") && rate > gpu.peak_bytes * 1e-3 * (1.0 + 1e-6)) {
                        throw ConfigError(profile_mistake(
                            origin, 0, "",
                            fmt::format("{}.{}: {} GB/s is more than the peak of {}, {} GB/s", name, p.name,
                                        rate, device.name, gpu.peak_bytes * 1e-3)));
                    }
                }
            },
            families);
    }
};

FittedOperators::FittedOperators(DeviceSpec device) : impl_(std::make_unique<Impl>()) {
    impl_->gpu = gpu_of(device);
    impl_->device = std::move(device);
}

FittedOperators::FittedOperators(DeviceSpec device, PublishedFit fit, std::optional<PowerFit> power)
    : FittedOperators(std::move(device)) {
    impl_->origin = std::move(fit.origin);
    impl_->families = std::move(fit.families);
    impl_->power = power;
    impl_->check_rates();
}

FittedOperators::~FittedOperators() = default;
FittedOperators::FittedOperators(FittedOperators&&) noexcept = default;
FittedOperators& FittedOperators::operator=(FittedOperators&&) noexcept = default;

const DeviceSpec& FittedOperators::device() const {
    return impl_->device;
}

const std::optional<PowerFit>& FittedOperators::power() const {
    return impl_->power;
}

Estimate FittedOperators::gemm(const GemmWork& w) const {
    KVSIM_CHECK(w.m > 0 && w.n > 0 && w.k > 0, "a product {} x {} x {}", w.m, w.n, w.k);
    const Families<OptionalFit>& f = impl_->families;
    const auto roof = [&] {
        const double element = bytes_per_element(w.format);
        const auto m = static_cast<double>(w.m);
        const auto n = static_cast<double>(w.n);
        const auto k = static_cast<double>(w.k);
        return Roof{(n * k + m * k) * element + 2.0 * m * n, 2.0 * m * n * k, w.format};
    };
    if (w.format == MatrixFormat::kBf16) return impl_->price("gemm_bf16", f.gemm_bf16, w, roof);
    if (w.format == MatrixFormat::kFp8) return impl_->price("gemm_fp8", f.gemm_fp8, w, roof);
    return impl_->roofline(roof());
}

Estimate FittedOperators::moe(const MoeWork& w) const {
    KVSIM_CHECK(w.tokens > 0 && w.distinct_experts > 0.0 && w.rows > 0.0, "{} tokens, {} experts, {} rows",
                w.tokens, w.distinct_experts, w.rows);
    const auto roof = [&] {
        constexpr double kLaunches = 5.0;  // align, two products, activation, sum
        const double matrices = w.gated ? 3.0 : 2.0;
        const double expert = matrices * w.shape.hidden * w.shape.intermediate;
        const double activations =
            2.0 * w.rows * (2.0 * w.shape.hidden + (matrices + 1.0) * w.shape.intermediate);
        return Roof{w.distinct_experts * expert * bytes_per_element(w.format) + activations,
                    2.0 * w.rows * expert, w.format, kLaunches};
    };
    if (w.format != MatrixFormat::kBf16) return impl_->roofline(roof());
    return impl_->price("moe_bf16", impl_->families.moe_bf16, w, roof);
}

Estimate FittedOperators::attention_decode(const AttentionDecodeWork& w) const {
    KVSIM_CHECK(w.sequences > 0 && w.context_sum >= w.sequences && w.context_max > 0,
                "{} sequences, {} tokens", w.sequences, w.context_sum);
    return impl_->price("attention_decode", impl_->families.attention_decode, w, [&] {
        constexpr double kLaunches = 3.0;  // store, attention, combine
        const AttentionTraffic t = traffic_of(w);
        return Roof{static_cast<double>(t.total()), static_cast<double>(t.flops), MatrixFormat::kBf16,
                    kLaunches};
    });
}

Estimate FittedOperators::attention_prefill(const AttentionPrefillWork& w) const {
    KVSIM_CHECK(w.sequences > 0 && w.new_tokens > 0, "{} sequences, {} tokens", w.sequences, w.new_tokens);
    return impl_->price("attention_prefill", impl_->families.attention_prefill, w, [&] {
        constexpr double kLaunches = 2.0;  // store, attention
        const AttentionTraffic t = traffic_of(w);
        return Roof{static_cast<double>(t.total()), static_cast<double>(t.flops), MatrixFormat::kBf16,
                    kLaunches};
    });
}

Estimate FittedOperators::packed_decode(const PackedDecodeWork& w) const {
    KVSIM_CHECK(w.sequences > 0, "no sequences");
    return impl_->price("packed_decode", impl_->families.packed_decode, w, [&] {
        return Roof{PackedDecodeLaw::bytes(w).moved, 0.0};
    });
}

Estimate FittedOperators::linear_bytes(const LinearBytesWork& w) const {
    KVSIM_CHECK(w.work.sequences > 0, "no sequences");
    if (w.form == Form::kRecurrent && w.shape.family == Family::kGdn && w.shape.state == StateFormat::kFp32)
        return packed_decode({w.shape, w.work.sequences, w.rotation});
    const PackedDecodeLaw::Bytes bytes = bytes_of(w);
    const OptionalFit<PackedDecodeLaw>& fit = impl_->families.packed_decode;
    if (!fit) return impl_->roofline({bytes.moved, 0.0});
    const LawTime t = fit->law.time(bytes, w.rotation, impl_->gpu);
    return to_estimate(t, fit->sigma[static_cast<std::size_t>(t.regime)], Source::kExtrapolated);
}

Estimate FittedOperators::linear_prefill(const LinearPrefillWork& w) const {
    KVSIM_CHECK(w.sequences > 0 && w.new_tokens > 0 && w.longest > 0, "{} sequences, {} tokens", w.sequences,
                w.new_tokens);
    const auto roof = [&] {
        constexpr double kLaunches = 8.0;
        const ChunkPrefillTraffic t = chunk_prefill_traffic(w.shape, w.sequences, w.new_tokens);
        return Roof{static_cast<double>(t.total()), static_cast<double>(t.flops), MatrixFormat::kBf16,
                    kLaunches};
    };
    const Families<OptionalFit>& f = impl_->families;
    if (f.fused_chunk) return impl_->price("fused_chunk", f.fused_chunk, w, roof);
    return impl_->price("staged_chunk", f.staged_chunk, w, roof);
}

Estimate FittedOperators::conv_update(const ConvWork& w) const {
    KVSIM_CHECK(w.sequences > 0 && w.channels > 0, "{} sequences, {} channels", w.sequences, w.channels);
    return impl_->price("conv_update", impl_->families.conv_update, w, [&] {
        return Roof{static_cast<double>(conv_bytes(w)), 0.0};
    });
}

Estimate FittedOperators::conv_prefill(const ConvWork& w) const {
    KVSIM_CHECK(w.sequences > 0 && w.tokens > 0 && w.channels > 0, "{} sequences, {} tokens, {} channels",
                w.sequences, w.tokens, w.channels);
    return impl_->price("conv_prefill", impl_->families.conv_prefill, w, [&] {
        return Roof{static_cast<double>(conv_bytes(w)), 0.0};
    });
}

Estimate FittedOperators::all_reduce(Bytes message, int ranks) const {
    KVSIM_CHECK(message.value() > 0 && ranks > 0, "{} bytes over {} ranks", message.value(), ranks);
    if (ranks == 1) return {};
    const AllReduceWork work{static_cast<double>(message.value()), ranks};
    if (impl_->families.all_reduce) {
        return impl_->price("all_reduce", impl_->families.all_reduce, work, [] { return Roof{}; });
    }
    // Two steps over the link; three launches' worth of latency for the two hand-overs.
    return impl_->over_link(2.0 * (ranks - 1.0) / ranks * work.bytes, 3.0);
}

Estimate FittedOperators::all_to_all(Bytes sent, int ranks) const {
    KVSIM_CHECK(sent.value() >= 0 && ranks > 1, "{} bytes over {} ranks", sent.value(), ranks);
    // One step, one hand-over.
    return impl_->over_link(static_cast<double>(sent.value()), 2.0);
}

Estimate FittedOperators::elementwise(Bytes bytes) const {
    const double memory = static_cast<double>(bytes.value()) / (impl_->gpu.peak_bytes * kAchievedBandwidth);
    return to_estimate(law_time(kSmallKernelUs + memory, kSmallKernelUs, memory, 0.0),
                       kSmallKernelUncertainty, Source::kRoofline);
}

Estimate FittedOperators::roofline(Bytes bytes, Flops flops, std::int64_t launches,
                                   MatrixFormat format) const {
    return impl_->roofline({static_cast<double>(bytes.value()), static_cast<double>(flops.value()), format,
                            static_cast<double>(launches)});
}

FittedOperators load_fitted_operators(const DeviceSpec& device, const std::string& profile_folder) {
    const std::filesystem::path file = std::filesystem::path(profile_folder) / "published.yaml";
    if (!std::filesystem::exists(file)) return FittedOperators(device);
    PublishedFit fit = load_published(file.string());
    if (fit.device != device.name) {
        throw ConfigError(profile_mistake(file.string(), 0, "device",
                                          fmt::format("expected {}, got {}", device.name, fit.device)));
    }
    return FittedOperators(device, std::move(fit), load_power(profile_folder));
}

}  // namespace kvsim
