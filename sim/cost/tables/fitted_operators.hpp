// Prices operators from laws fitted to published tables (profiles/<gpu>/published.yaml), with the uncertainty
// that the fit's residuals show; a family without a fit falls back on the data-sheet roofline and says so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "sim/base/units.hpp"
#include "sim/cost/device.hpp"
#include "sim/cost/power.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/cost/tables/gpu.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

struct Estimate {
    Time time;
    // Relative, about one standard deviation: two thirds of the held-out rows of the same family and regime
    // are closer. kRooflineUncertainty where nothing was measured.
    double uncertainty = 0.0;
    Source source =
        Source::kRoofline;  // kFitted, kExtrapolated outside the shapes of the table, or kRoofline
    Regime regime = Regime::kLatency;
};
inline constexpr double kRooflineUncertainty = 0.5;

struct PublishedFit;

class FittedOperators {
  public:
    // Data-sheet roofline for everything.
    explicit FittedOperators(DeviceSpec device);
    // Throws ConfigError when the fit claims more than the device's peaks.
    FittedOperators(DeviceSpec device, PublishedFit fit, std::optional<PowerFit> power = {});
    ~FittedOperators();
    FittedOperators(FittedOperators&&) noexcept;
    FittedOperators& operator=(FittedOperators&&) noexcept;

    // All are one call of an operator in one layer, at least one launch in a CUDA graph, cold L2 unless the
    // work says otherwise. Cheap: no allocation.
    Estimate gemm(const GemmWork& work) const;
    Estimate moe(const MoeWork& work) const;
    Estimate attention_decode(const AttentionDecodeWork& work) const;
    Estimate attention_prefill(const AttentionPrefillWork& work) const;
    Estimate packed_decode(const PackedDecodeWork& work) const;
    // At the rates of packed_decode, which prices what its table holds; extrapolated for other forms and
    // formats.
    Estimate linear_bytes(const LinearBytesWork& work) const;
    Estimate linear_prefill(const LinearPrefillWork& work) const;
    Estimate conv_update(const ConvWork& work) const;
    Estimate conv_prefill(const ConvWork& work) const;
    // Sum of `message` bytes over `ranks` GPUs of one node.
    Estimate all_reduce(Bytes message, int ranks) const;
    // Every rank sends `sent` bytes to others of one node, and gets as many. No table has it: always
    // roofline.
    Estimate all_to_all(Bytes sent, int ranks) const;
    // A pointwise, norm or gather kernel: launch, then bytes (read plus written) at the memory's rate.
    Estimate elementwise(Bytes bytes) const;
    // Where there is no table: launches, then bytes and FLOPs at the share of their peaks that large kernels
    // reach.
    Estimate roofline(Bytes bytes, Flops flops, std::int64_t launches, MatrixFormat format) const;

    const DeviceSpec& device() const;
    const std::optional<PowerFit>& power() const;  // none: not measured on the device

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Reads published.yaml and power.yaml of a folder profiles/<gpu> when they are there; without the former, the
// roofline of the data sheet, which nothing holds up.
FittedOperators load_fitted_operators(const DeviceSpec& device, const std::string& profile_folder);

}  // namespace kvsim
