// Prices one operator: published tables and data sheet (FittedOperators), decode kernels of linear attention
// from their own fits, launch gaps from the engine. Refuses what would beat the device's peaks.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/cost/fit.hpp"
#include "sim/cost/graph/engine_steps.hpp"
#include "sim/cost/graph/operator.hpp"
#include "sim/cost/tables/fitted_operators.hpp"

namespace kvsim {

// What takes more than half of an operator's time: launch and latency, or else the larger of memory and
// compute.
enum class Bound : std::uint8_t { kLaunch, kMemory, kCompute };
inline constexpr std::array<std::string_view, 3> kBoundNames{"launch", "memory", "compute"};

struct OperatorPrice {
    Time time;                 // of one layer
    Time gap;                  // of it the launch gaps of element-wise kernels, which others' times include
    double uncertainty = 0.0;  // relative, one standard deviation
    Source source = Source::kRoofline;
    CostFamily family = CostFamily::kHost;
    Bound bound = Bound::kLaunch;
    bool full_power = false;  // bf16 products that tensor cores bound: see PowerFit
};

// Fits of decode kernels of linear attention.
struct LinearKernelFits {
    std::optional<ProfileFit> fit;  // none: all on the roofline
    bool scaled = false;            // measured on another GPU: see scaled_to()
    int ring_capacity = 0;          // of forms with a ring, as served; 0: see LinearLaunch
};

// The same kernels on a GPU whose memory is `ratio` times as fast: every bandwidth of the laws times the
// ratio, latencies as they are. Prices are then extrapolated.
LinearKernelFits scaled_to(ProfileFit fit, double ratio);

// Attention of a decode step as a function of the context, for a given number of sequences and spread of
// lengths: affine between breakpoints, at which the law is evaluated. Integers, so that sums over steps are
// exact.
struct AttentionSegment {
    std::int64_t first_sum = 0, last_sum = 0;  // of contexts over sequences, new tokens included
    std::int64_t longest_beyond = 0;           // keys of the longest sequence beyond the mean, at most
    OperatorPrice first, last;

    bool contains(std::int64_t sum) const { return first_sum <= sum && sum <= last_sum; }
    // Whether it prices that work, of the rows and heads that it was made for.
    bool covers(const AttentionDecodeWork& work) const;
    Time time(std::int64_t context_sum) const;
};

class OperatorPricer {
  public:
    // Throws ConfigError for a fit that claims more bandwidth than the device has.
    OperatorPricer(FittedOperators operators, LinearKernelFits linear, const EngineSteps& engine);

    OperatorPrice price(const Operator& op) const;
    AttentionSegment attention_segment(const AttentionDecodeWork& work) const;
    OperatorPrice attention(const AttentionSegment& segment, std::int64_t context_sum) const;
    OperatorPrice host_gap() const;
    // What the power limit adds to a step with products of such a time in all; none where it was not
    // measured.
    OperatorPrice power_limit(Time products) const;
    // Up to here it adds nothing.
    Time time_at_full_power() const { return at_full_power_; }

    const DeviceSpec& device() const { return operators_.device(); }

  private:
    OperatorPrice price_work(const Operator& op, const ElementWise&) const;
    OperatorPrice price_work(const Operator& op, const GemmWork& w) const;
    OperatorPrice price_work(const Operator& op, const ExpertsWork& w) const;
    OperatorPrice price_work(const Operator& op, const AttentionDecodeWork& w) const;
    OperatorPrice price_work(const Operator& op, const AttentionPrefillWork& w) const;
    OperatorPrice price_work(const Operator& op, const LinearDecode& w) const;
    OperatorPrice price_work(const Operator& op, const LinearPrefillWork& w) const;
    OperatorPrice price_work(const Operator& op, const ConvUpdate& w) const;
    OperatorPrice price_work(const Operator& op, const ConvPrefill& w) const;
    OperatorPrice price_work(const Operator& op, const Roofline& w) const;
    OperatorPrice price_work(const Operator& op, const AllReduce& w) const;
    OperatorPrice price_work(const Operator& op, const AllToAll& w) const;
    // At the device's peaks: bytes that must come from DRAM, FLOPs.
    double least_seconds(const Operator& op) const;
    void refuse_the_impossible(const Operator& op, Time time) const;

    FittedOperators operators_;
    LinearKernelFits linear_;
    Time launch_gap_;
    Time host_gap_;
    Time at_full_power_;
    double peak_bandwidth_;  // bytes per second
    double peak_flops_;      // of any format
};

}  // namespace kvsim
