#include "sim/cost/compiled_cost.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/cost/step_plan.hpp"

namespace kvsim {

namespace {

constexpr std::size_t kPlans = 512;

std::vector<std::int64_t> layers_by_kind(const ModelSpec& model, const std::string& pattern) {
    std::vector<std::int64_t> layers;
    for (const LayerKind& kind : model.kinds) layers.push_back(std::ranges::count(pattern, kind.letter));
    return layers;
}

std::vector<NamedList> one_draft(const StepContext& context, const StepShape& pass) {
    return draft_operators(context, pass, 1);
}

}  // namespace

struct CompiledStepCost::Impl {
    const StepCost& cost;
    PlannedPass forward;
    std::optional<PlannedPass> draft;
    std::vector<std::int32_t> slots = std::vector<std::int32_t>(kPlans, -1);
    std::vector<StepPlan> plans;  // of steps without prompts
    std::size_t last = 0;         // plan that was asked for
    StepPlan with_prompts;        // of the last step with some
    OperatorList end;             // of the plan that is being made

    explicit Impl(const StepCost& c)
        : cost(c),
          forward(c, forward_operators, layers_by_kind(c.context().model, c.context().model.pattern)) {}

    void make(const StepShape& shape, StepPlan& plan) {
        const OperatorPricer& pricer = cost.pricer();
        plan.clear();
        plan.constant.cost.add(pricer.host_gap());
        forward.add(shape, 1, {}, plan);
        end.clear();
        append_folds(cost.context(), shape.folds, end);
        for (const Operator& op : end) plan.folds += pricer.price(op).time;
        append_end(cost.context(), shape, end);
        for (const Operator& op : end) plan.constant.add(op, pricer.price(op), 1);
        if (shape.drafts == 0) return;
        const ModelSpec& model = cost.context().model;
        KVSIM_CHECK(!model.mtp_pattern.empty(), "{} drafts of a model without any", shape.drafts);
        if (!draft) draft.emplace(cost, one_draft, layers_by_kind(model, model.mtp_pattern));
        const DraftPasses passes = draft_passes(cost.context(), shape);
        draft->add(passes.first, 1, {}, plan);
        if (passes.later_count == 0) return;
        const DecodeAttentionShape& later = passes.later.decode;
        draft->add(passes.later, passes.later_count,
                   {later.sequences - shape.decode.sequences, later.context_sum - shape.decode.context_sum,
                    later.context_max - shape.decode.context_max},
                   plan);
    }

    StepPlan& plan_of(const StepShape& shape) {
        if (last < plans.size() && plans[last].key.is_of(shape)) return plans[last];
        const PlanKey key(shape);
        std::int32_t& slot = slots[key.hash() % kPlans];
        if (slot < 0) {
            slot = static_cast<std::int32_t>(plans.size());
            plans.emplace_back();
        }
        last = static_cast<std::size_t>(slot);
        StepPlan& plan = plans[last];
        if (plan.key.is_of(shape)) return plan;
        plan.key = {};  // of no step, should a price be refused
        make(shape, plan);
        plan.key = key;
        return plan;
    }
};

CompiledStepCost::CompiledStepCost(const StepCost& cost) : impl_(std::make_unique<Impl>(cost)) {}
CompiledStepCost::~CompiledStepCost() = default;
CompiledStepCost::CompiledStepCost(CompiledStepCost&&) noexcept = default;
CompiledStepCost& CompiledStepCost::operator=(CompiledStepCost&&) noexcept = default;

StepPrice CompiledStepCost::price(const StepShape& shape) {
    KVSIM_CHECK(shape.tokens() > 0, "a step without tokens");
    Impl& impl = *impl_;
    StepPlan* plan = &impl.with_prompts;
    if (shape.prefill.new_tokens > 0) {
        impl.make(shape, *plan);
    } else {
        plan = &impl.plan_of(shape);
    }
    return plan->price(shape, impl.forward.linear_prices(), impl.cost.pricer());
}

}  // namespace kvsim
