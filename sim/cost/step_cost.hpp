// Prices a step: the operators of one forward pass of a model on one rank, as an engine launches them.
//
// A step is a graph of operators per kind of layer (sim/cost/graph); layers follow one another, those of one
// kind are priced once and counted. Its time is the longest path, the gap of the host between two steps, and
// what the power limit takes from long steps.
// Prices by operator: sim/cost/graph/operator_pricer.hpp.
//
// Uncertainty: errors within a family of operators (GEMM, attention, ...) are taken as fully correlated,
// since one law prices them all: their standard deviations add along the critical path. Those of different
// families are independent: squares add.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/cost/graph/operator_pricer.hpp"
#include "sim/cost/graph/operators.hpp"
#include "sim/cost/step_shape.hpp"

namespace kvsim {

struct StepCostParts {
    ModelSpec model;
    Parallelism parallelism;
    EngineSteps engine;
    StateFormat state = StateFormat::kFp32;
    FittedOperators operators;
    LinearKernelFits linear;
    int drafts = 0;  // most that a step proposes
    RecordFormat records = RecordFormat::kBf16;
};

// One line of `kvsim explain`: an operator, alike in `count` layers. launches, bytes, flops and time are
// totals over them. The host's gap and the power limit are lines without launches.
struct OperatorCost {
    std::string name;
    std::int64_t count = 0;
    std::int64_t launches = 0;
    ByteLedger bytes{};
    Flops flops;
    Time time;
    Time gap;  // of it the launch gaps of element-wise kernels
    Bound bound = Bound::kLaunch;
    Source source = Source::kRoofline;
    CostFamily family = CostFamily::kHost;
    double uncertainty = 0.0;  // relative, one standard deviation
    bool critical = true;      // on the path whose length is the step; others run beside it
};

// One standard deviation of the time of the step that these operators make up.
Time step_uncertainty(std::span<const OperatorCost> operators);

// A list of operators with its prices, alike in `count` layers.
struct PricedList : NamedList {
    std::vector<OperatorPrice> prices;
};

class StepCost {
  public:
    // Throws ConfigError when the model cannot be cut over the ranks, has no MTP module for the drafts, or a
    // fit claims more than the device can do.
    explicit StepCost(StepCostParts parts);
    ~StepCost();
    StepCost(StepCost&&) noexcept;
    StepCost& operator=(StepCost&&) noexcept;

    // A step of at least one token, by a walk of the graph. Throws ConfigError when a kernel would be faster
    // than the device's peaks allow.
    StepPrice price(const StepShape& shape) const;
    // The same operators one by one: times of the critical ones, bytes of all and sources sum to price(shape)
    // exactly.
    std::vector<OperatorCost> explain(const StepShape& shape) const;
    // The graph for Graphviz.
    std::string graphviz(const StepShape& shape) const;

    std::vector<PricedList> priced_lists(const StepShape& shape) const;
    const StepContext& context() const;
    const OperatorPricer& pricer() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Sums that a path, a layer or a step carries: exact, in picoseconds.
struct CostSums {
    Time time;
    std::array<Time, kSourceCount> by_source{};
    Time linear;      // of which decode kernels of linear attention
    Time full_power;  // of which products at full power

    CostSums& add(Time each, Source source, CostFamily family, std::int64_t count = 1) {
        const Time all = each * count;
        time += all;
        by_source[static_cast<std::size_t>(source)] += all;
        if (family == CostFamily::kLinear) linear += all;
        return *this;
    }
    CostSums& add(const OperatorPrice& price, std::int64_t count = 1) {
        if (price.full_power) full_power += price.time * count;
        return add(price.time, price.source, price.family, count);
    }
    CostSums& add(const CostSums& other, std::int64_t count);
    // With what the power limit adds to all of them together.
    void write(StepPrice& price, const OperatorPricer& pricer) const;
};

}  // namespace kvsim
