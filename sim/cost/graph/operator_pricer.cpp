#include "sim/cost/graph/operator_pricer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/graph/parts.hpp"

namespace kvsim {

namespace {

// Published figures of what a node costs, and of what an engine's host adds, differ by so much among
// themselves.
constexpr double kHostUncertainty = 0.5;
// A normal distribution has half of its values within 0.674 standard deviations.
constexpr double kSigmaPerMedian = 1.0 / 0.674;

OperatorPrice to_price(const Estimate& e, CostFamily family) {
    return {e.time, Time(), e.uncertainty, e.source, family, static_cast<Bound>(e.regime)};
}

// ---- breakpoints of the context ----

// Multiples of 128 keys, a block of the kernels, up to 1024; then eight to an octave. Powers of two.
std::int64_t breakpoint_step(std::int64_t context) {
    constexpr std::int64_t kBlock = 128, kEven = 1024, kPerOctave = 8;
    if (context < kEven) return kBlock;
    return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(context))) / kPerOctave;
}
std::int64_t breakpoint_below(std::int64_t context) {
    return context & -breakpoint_step(context);
}
std::int64_t breakpoint_above(std::int64_t context) {
    const std::int64_t step = breakpoint_step(context);
    return (context & -step) + step;
}

// Of the longest sequence beyond the mean one, up to the next breakpoint.
std::int64_t longest_beyond(const AttentionDecodeWork& w) {
    const std::int64_t spread = w.context_max - (w.context_sum + w.sequences - 1) / w.sequences;
    return spread <= 0 ? 0 : breakpoint_above(spread - 1);
}

}  // namespace

LinearKernelFits scaled_to(ProfileFit fit, double ratio) {
    fit.read.law.gb_per_s *= ratio;
    fit.copy.law.gb_per_s *= ratio;
    for (LinearFit& kernel : fit.linear) {
        for (LinearRegime& regime : kernel.regimes) {
            std::visit(
                [&](auto& law) {
                    for (const auto& p : kLawParameters<std::decay_t<decltype(law)>>) {
                        if (p.name.ends_with("_gb_per_s")) law.*(p.member) *= ratio;
                    }
                },
                regime.law);
        }
    }
    LinearKernelFits kernels;
    kernels.fit = std::move(fit);
    kernels.scaled = true;
    return kernels;
}

bool AttentionSegment::covers(const AttentionDecodeWork& work) const {
    return contains(work.context_sum) && longest_beyond == kvsim::longest_beyond(work);
}

Time AttentionSegment::time(std::int64_t context_sum) const {
    const std::int64_t rise = (last.time - first.time).value();
    const std::int64_t run = last_sum - first_sum;
    std::int64_t product = 0;
    if (!__builtin_mul_overflow(rise, context_sum - first_sum, &product))
        return first.time + Time(product / run);
    __extension__ using Wide = __int128;  // a rise of 1e12 ps times 1e12 tokens
    return first.time +
           Time(static_cast<std::int64_t>(static_cast<Wide>(rise) * (context_sum - first_sum) / run));
}

OperatorPricer::OperatorPricer(FittedOperators operators, LinearKernelFits linear, const EngineSteps& engine)
    : operators_(std::move(operators)),
      linear_(std::move(linear)),
      launch_gap_(engine.launch_gap),
      host_gap_(engine.host_gap),
      at_full_power_(operators_.power() ? operators_.power()->boost()
                                        : Time(std::numeric_limits<std::int64_t>::max())),
      peak_bandwidth_(device().peak_bandwidth.value()),
      peak_flops_(
          std::max({device().peak_bf16.value(), device().peak_fp8.value(), device().peak_fp4.value()})) {
    if (!linear_.fit) return;
    const double peak = device().peak_bandwidth.value() * 1e-9;
    if (linear_.fit->copy.law.gb_per_s > peak) {
        throw ConfigError(profile_mistake(
            linear_.fit->origin, 0, "",
            fmt::format("copy bandwidth of {:.0f} GB/s is above the peak of device {}, {:.0f} GB/s",
                        linear_.fit->copy.law.gb_per_s, device().name, peak)));
    }
}

OperatorPrice OperatorPricer::host_gap() const {
    return {host_gap_, Time(), kHostUncertainty, Source::kRoofline, CostFamily::kHost, Bound::kLaunch};
}

OperatorPrice OperatorPricer::power_limit(Time products) const {
    OperatorPrice price{Time(), Time(), 0.0, Source::kFitted, CostFamily::kGemm, Bound::kCompute};
    if (products <= at_full_power_) return price;
    const PowerFit& power = *operators_.power();
    price.time = power.held_up(products);
    // Of 1/share - 1, where the share errs by its spread.
    price.uncertainty = power.sustained_share < 1.0 ? power.spread / (1.0 - power.sustained_share) : 0.0;
    return price;
}

OperatorPrice OperatorPricer::price(const Operator& op) const {
    const OperatorPrice price =
        std::visit([&](const auto& work) { return price_work(op, work); }, op.pricing);
    refuse_the_impossible(op, price.time);
    return price;
}

OperatorPrice OperatorPricer::price_work(const Operator& op, const ElementWise&) const {
    // Each launch passes over its share of the bytes: the time of all of them, and the other launches'
    // floors.
    OperatorPrice price = to_price(operators_.elementwise(Bytes(op.total_bytes())), CostFamily::kElementWise);
    if (op.launches > 1) price.time += operators_.elementwise(Bytes(0)).time * (op.launches - 1);
    price.gap = launch_gap_ * op.launches;
    price.time += price.gap;
    return price;
}

OperatorPrice OperatorPricer::price_work(const Operator&, const GemmWork& w) const {
    OperatorPrice price = to_price(operators_.gemm(w), CostFamily::kGemm);
    price.full_power = w.format == MatrixFormat::kBf16 && price.bound == Bound::kCompute;
    return price;
}

OperatorPrice OperatorPricer::price_work(const Operator&, const ExpertsWork& w) const {
    return to_price(operators_.moe(w), CostFamily::kMoe);
}

OperatorPrice OperatorPricer::price_work(const Operator&, const AttentionDecodeWork& w) const {
    return attention(attention_segment(w), w.context_sum);
}

AttentionSegment OperatorPricer::attention_segment(const AttentionDecodeWork& w) const {
    const std::int64_t mean = w.context_sum / w.sequences;
    AttentionSegment segment;
    segment.longest_beyond = longest_beyond(w);
    const auto at = [&](std::int64_t context, std::int64_t sum) {
        AttentionDecodeWork work = w;
        work.context_sum = sum;
        work.context_max = context + segment.longest_beyond;
        return to_price(operators_.attention_decode(work), CostFamily::kAttention);
    };
    const std::int64_t below = std::max<std::int64_t>(1, breakpoint_below(mean));
    const std::int64_t above = breakpoint_above(mean);
    segment.first_sum = below * w.sequences;
    segment.last_sum = above * w.sequences;
    segment.first = at(below, segment.first_sum);
    segment.last = at(above, segment.last_sum);
    return segment;
}

OperatorPrice OperatorPricer::attention(const AttentionSegment& segment, std::int64_t context_sum) const {
    KVSIM_CHECK(segment.contains(context_sum), "{} tokens are not between {} and {}", context_sum,
                segment.first_sum, segment.last_sum);
    // Of its ends the price whose source claims less.
    OperatorPrice price = segment.last.source > segment.first.source ? segment.last : segment.first;
    price.time = segment.time(context_sum);
    return price;
}

OperatorPrice OperatorPricer::price_work(const Operator&, const AttentionPrefillWork& w) const {
    return to_price(operators_.attention_prefill(w), CostFamily::kPrefill);
}

OperatorPrice OperatorPricer::price_work(const Operator& op, const LinearDecode& w) const {
    const LinearFit* kernel = nullptr;
    if (linear_.fit) {
        for (const LinearFit& k : linear_.fit->linear) {
            if (k.matches(w.shape, w.form)) kernel = &k;
        }
    }
    if (kernel == nullptr) {
        return to_price(
            operators_.roofline(Bytes(op.total_bytes()), Flops(op.flops), op.launches, MatrixFormat::kBf16),
            CostFamily::kLinear);
    }
    const TimedSource timed =
        linear_.fit->linear_time(*kernel, {w.shape, w.form, w.work, linear_.ring_capacity});
    const ErrorSummary& errors = kernel->held_out.rows > 0 ? kernel->held_out : kernel->fitted;
    OperatorPrice price{timed.time,          Time(),        errors.median * kSigmaPerMedian, timed.source,
                        CostFamily::kLinear, Bound::kLaunch};
    if (linear_.scaled) {
        // Kernels of another device scaled by bandwidth: tensor cores may be what binds on this one.
        price.time = std::max(price.time, time_from_us(1e6 * least_seconds(op)));
        price.source = Source::kExtrapolated;
    }
    if (static_cast<double>(op.total_bytes()) / peak_bandwidth_ >= 0.5 * to_seconds(timed.time))
        price.bound = Bound::kMemory;
    return price;
}

OperatorPrice OperatorPricer::price_work(const Operator&, const LinearPrefillWork& w) const {
    OperatorPrice price = to_price(operators_.linear_prefill(w), CostFamily::kPrefill);
    // Tables are of scalar gates.
    if (w.shape.family != Family::kGdn && price.source == Source::kFitted)
        price.source = Source::kExtrapolated;
    return price;
}

OperatorPrice OperatorPricer::price_work(const Operator&, const ConvUpdate& w) const {
    return to_price(operators_.conv_update(w), CostFamily::kConv);
}

OperatorPrice OperatorPricer::price_work(const Operator&, const ConvPrefill& w) const {
    return to_price(operators_.conv_prefill(w), CostFamily::kConv);
}

OperatorPrice OperatorPricer::price_work(const Operator& op, const Roofline& w) const {
    return to_price(operators_.roofline(Bytes(op.total_bytes()), Flops(op.flops), op.launches, w.format),
                    CostFamily::kPrefill);
}

OperatorPrice OperatorPricer::price_work(const Operator& op, const AllReduce& w) const {
    OperatorPrice price = to_price(operators_.all_reduce(w.message, w.ranks), CostFamily::kAllReduce);
    // A norm that runs in the same kernel: its bytes, without a launch.
    const Bytes beside(op.total_bytes() - 2 * w.message.value());
    if (beside > Bytes(0))
        price.time += operators_.elementwise(beside).time - operators_.elementwise(Bytes(0)).time;
    return price;
}

OperatorPrice OperatorPricer::price_work(const Operator&, const AllToAll& w) const {
    return to_price(operators_.all_to_all(w.sent, w.ranks), CostFamily::kAllToAll);
}

double OperatorPricer::least_seconds(const Operator& op) const {
    // Activations may stay in the L2 from one operator to the next; weights, states, records and KV cannot.
    const Bytes activations = op.bytes[static_cast<std::size_t>(Owner::kActivations)];
    return std::max(static_cast<double>(op.total_bytes() - activations.value()) / peak_bandwidth_,
                    static_cast<double>(op.flops) / peak_flops_);
}

void OperatorPricer::refuse_the_impossible(const Operator& op, Time time) const {
    const double least_s = least_seconds(op);
    if (to_seconds(time) >= least_s * (1.0 - 1e-6)) return;
    throw ConfigError(profile_mistake(
        linear_.fit ? linear_.fit->origin : device().name, 0, "",
        fmt::format("{}: {:.3f} us is impossible on device {}, which needs {:.3f} us at its peaks", op.name,
                    to_us(time), device().name, least_s * 1e6)));
}

}  // namespace kvsim
