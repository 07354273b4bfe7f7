// Prices of decode launches of linear attention, kept by what a launch holds: of the launches of a run few
// are new.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/cost/graph/operator_pricer.hpp"
#include "sim/cost/graph/parts.hpp"

namespace kvsim {

// A launch, which is one layer. A line of the cache, since looking it up costs more than all else.
struct alignas(64) LinearLaunchPrice {
    LinearWork work;
    Time time;
    Time unflushed;  // the same launch without flushes
    Source source = Source::kRoofline;
};

// Keeps kLaunches of each form that is asked for, 1 MiB.
class LinearPrices {
  public:
    // `pricer` outlives it.
    LinearPrices(const LinearPart& part, const OperatorPricer& pricer) : part_(part), pricer_(pricer) {}

    const LinearPart& part() const { return part_; }
    // Valid until the next call with that form. Throws ConfigError for what would beat the device's peaks.
    const LinearLaunchPrice& at(Form form, const LinearWork& work);

  private:
    static constexpr int kLogLaunches = 14;

    LinearLaunchPrice priced(Form form, const LinearWork& work) const;

    LinearPart part_;
    const OperatorPricer& pricer_;
    std::array<std::vector<LinearLaunchPrice>, kFormCount> launches_;  // of a form, by place_of(work)
};

}  // namespace kvsim
