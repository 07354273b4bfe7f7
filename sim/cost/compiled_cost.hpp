// The step cost as a scheduler asks for it: many steps that differ in contexts and fills alone.
//
// Steps with the same tokens, rows and logit rows share a plan: constants of everything that does not depend
// on contexts, fills and flushes, one sum per path through each layer's graph. What is left are the decode
// kernels of linear attention (their law) and decode attention, which is affine in the context between
// breakpoints. All sums are integers (picoseconds, bytes), so the result equals the walk of the graph,
// StepCost::price, exactly. Steps with prefill differ from one another in every term, and are walked.
#pragma once

#include <memory>

#include "sim/cost/step_cost.hpp"

namespace kvsim {

// Plans are made as steps come, so one thread at a time may use it; `cost` must outlive it.
class CompiledStepCost {
  public:
    explicit CompiledStepCost(const StepCost& cost);
    ~CompiledStepCost();
    CompiledStepCost(CompiledStepCost&&) noexcept;
    CompiledStepCost& operator=(CompiledStepCost&&) noexcept;

    StepPrice price(const StepShape& shape);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvsim
