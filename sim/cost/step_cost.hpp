// Prices a step: the operators of one forward pass of a model, as an engine launches them on one GPU, one
// after another.
//
// Linear attention in decode is priced from the kernels' own fit; every other operator by a roofline:
// launches (measured empty graph node) + max(bytes / measured copy bandwidth at that size, FLOPs / peak bf16
// rate), marked `roofline`. Sampling is greedy. What the walk leaves out is said in sim/cost/operators.hpp.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/device.hpp"
#include "sim/cost/fit.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

// What takes more than half of an operator's time: launch and latency, or else the larger of memory and
// compute.
enum class Bound : std::uint8_t { kLaunch, kMemory, kCompute };
inline constexpr std::array<std::string_view, 3> kBoundNames{"launch", "memory", "compute"};

// One line of `kvsim explain`: an operator, alike in `count` layers. launches, bytes, flops and time are
// totals over them.
struct OperatorCost {
    std::string name;
    std::int64_t count = 0;
    std::int64_t launches = 0;
    ByteLedger bytes{};
    Flops flops;
    Time time;
    Bound bound = Bound::kLaunch;
    Source source = Source::kRoofline;
};

class StepCost {
  public:
    // `fit` must hold the forms that will be priced: asking for another throws ConfigError naming the
    // profile. So does a profile that claims more than the device can do: a rate above its peak bandwidth,
    // here; a kernel faster than its bytes / peak bandwidth or FLOPs / peak rate, when it is priced.
    StepCost(ModelSpec model, DeviceSpec device, ProfileFit fit, StateFormat state);
    ~StepCost();
    StepCost(StepCost&&) noexcept;
    StepCost& operator=(StepCost&&) noexcept;

    // A step of at least one token. Cheap: no allocation, and no look-up by name.
    StepPrice price(const StepShape& shape) const;
    // The same operators one by one; times, bytes and sources sum to price(shape) exactly.
    std::vector<OperatorCost> explain(const StepShape& shape) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvsim
