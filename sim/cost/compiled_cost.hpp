// The step cost as a scheduler asks for it: many steps, no graph.
//
// A step is the sum of
//   operators that its number of tokens determines, or its rows of logits: kept by that number (SumTable)
//   operators of prompts, of verification and of copies of states: priced by their laws, step by step
//   decode kernels of linear attention, whose law knows records and flushes; and decode attention, affine in
//   the context between breakpoints.
// Steps without prompts that have the same rows and tokens share a plan, in which only the last line is left
// to price. All sums are integers (picoseconds, bytes) of the same prices as those of the graph, so the
// result equals its walk, StepCost::price, exactly.
//
// Nothing is allocated, looked up by name or walked once tables and plans exist. Memory: kPlans plans of
// about 2 KiB, and at most six SumTables.
#pragma once

#include <memory>

#include "sim/cost/step_cost.hpp"

namespace kvsim {

// Tables fill as steps come, so one thread at a time may use it; `cost` must outlive it.
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
