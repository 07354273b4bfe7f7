// What steps with the same rows and tokens have in common, and what is left to price of each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/cost/graph/parts.hpp"
#include "sim/cost/linear_prices.hpp"
#include "sim/cost/sum_table.hpp"

namespace kvsim {

// Rows and tokens of a step without prompts.
struct PlanKey {
    std::array<std::int64_t, 2 * kFormCount + 6> numbers{};

    PlanKey() = default;
    explicit PlanKey(const StepShape& shape);
    bool is_of(const StepShape& shape) const;
    std::size_t hash() const;
};

// A decode kernel of linear attention, of `layers` layers, of which `serial` are not beside attention.
struct LinearTerm {
    Form form = Form::kRecurrent;
    std::int64_t layers = 0, serial = 0;
    const LinearLaunchPrice* launch = nullptr;  // of the step that is priced

    Time flushes() const { return launch->time - launch->unflushed; }
    void add_to(CostSums& sums, std::int64_t count) const {
        sums.add(launch->time, launch->source, CostFamily::kLinear, count);
    }
    void add_bytes(const LinearShape& shape, ByteLedger& bytes) const;  // those that a plan does not know
};

// Decode attention.
struct AttentionTerm {
    Operator op;
    std::int64_t layers = 0, serial = 0;
    std::int64_t tokens_per_row = 1;
    DecodeAttentionShape beyond;  // the contexts of the step: what the pass has more of each (drafting)
    std::optional<AttentionSegment> segment;
    OperatorPrice price;

    void renew(const DecodeAttentionShape& contexts, const OperatorPricer& pricer);
};

struct StepPlan {
    PlanKey key;
    PassSums constant;  // host gap included
    Time folds;         // of which: flushes beside the launches
    std::vector<LinearTerm> linear;
    std::vector<AttentionTerm> attention;
    // Layers whose mixers run beside each other: constants of one layer on either branch, which linear terms
    // and the first attention term add to.
    std::int64_t beside_layers = 0;
    CostSums beside_attention, beside_linear;

    void clear();
    // `linear_prices` of the model, if it has such layers.
    StepPrice price(const StepShape& shape, LinearPrices* linear_prices, const OperatorPricer& pricer);

  private:
    Time add_beside(CostSums& sums) const;  // returns by how much flushes make these layers longer
};

// A forward pass: the model's own, or the MTP module's.
class PlannedPass {
  public:
    using Lists = std::vector<NamedList> (*)(const StepContext&, const StepShape&);

    // `lists` of the pass; `layers` by kind of the model's.
    PlannedPass(const StepCost& cost, Lists lists, std::vector<std::int64_t> layers);

    LinearPrices* linear_prices() { return linear_ ? &*linear_ : nullptr; }
    // Adds `times` passes with that shape to a plan.
    void add(const StepShape& shape, std::int64_t times, const DecodeAttentionShape& beyond, StepPlan& plan);

  private:
    struct AttentionKind {
        AttentionPart part;
        std::int64_t layers = 0;
        std::int64_t with_linear = 0;  // of them with both mixers
    };

    void add_linear(const StepShape& shape, std::int64_t beside, std::int64_t times, StepPlan& plan);
    void add_attention(const AttentionKind& kind, const StepShape& shape, std::int64_t beside,
                       std::int64_t times, const DecodeAttentionShape& beyond, StepPlan& plan);

    const OperatorPricer& pricer_;
    std::array<SumTable, 2> tokens_;  // without and with prompts
    SumTable logits_;
    std::optional<LinearPrices> linear_;
    std::int64_t linear_layers_ = 0;
    std::vector<AttentionKind> attention_;
    OperatorList scratch_;
};

}  // namespace kvsim
