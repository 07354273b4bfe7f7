#include "sim/cost/compiled_cost.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "kernels/traffic_attention.hpp"
#include "kernels/traffic_linear.hpp"
#include "sim/base/check.hpp"
#include "sim/cost/graph/layer_graph.hpp"

namespace kvsim {

namespace {

// What a plan depends on.
using PlanKey = std::array<std::int64_t, 2 + 2 * kFormCount>;

PlanKey key_of(const StepShape& shape) {
    PlanKey key{shape.logit_rows, shape.decode.sequences};
    for (std::size_t f = 0; f < kFormCount; ++f) {
        key[2 + 2 * f] = shape.linear[f].sequences;
        key[3 + 2 * f] = shape.linear[f].new_tokens;
    }
    return key;
}

bool varies(const Operator& op) {
    return std::holds_alternative<LinearDecode>(op.pricing) ||
           std::holds_alternative<AttentionDecodeWork>(op.pricing);
}

void set_bytes(Operator& op, Owner owner, std::int64_t n) {
    op.bytes[static_cast<std::size_t>(owner)] = Bytes(n);
}

// An operator whose price or bytes depend on contexts, fills or flushes, of one kind of layer.
struct Variable {
    Operator op;  // of the step that was priced last
    std::int64_t count = 1;
    std::int64_t context_offset = 0;  // keys that attention reads beyond the cached ones
    std::int64_t longest_offset = 0;
    std::optional<AttentionSegment> segment;
    std::int64_t segment_spread = 0;  // of lengths, for which the segment holds
    OperatorPrice price;

    void renew(const StepShape& shape, const OperatorPricer& pricer) {
        if (auto* linear = std::get_if<LinearDecode>(&op.pricing)) {
            linear->work = shape[linear->form];
            const LinearTraffic t = linear_traffic(linear->shape, linear->form, linear->work);
            set_bytes(op, Owner::kStateRead, t.state_read);
            set_bytes(op, Owner::kStateWrite, t.state_write);
            set_bytes(op, Owner::kBufferRead, t.buffer_read);
            set_bytes(op, Owner::kBufferWrite, t.buffer_write);
            op.flops = t.flops;
            price = pricer.price(op);
            return;
        }
        auto& work = std::get<AttentionDecodeWork>(op.pricing);
        work.context_sum = shape.decode.context_sum + context_offset;
        work.context_max = shape.decode.context_max + longest_offset;
        set_bytes(op, Owner::kKvRead, work.context_sum * kv_token_bytes(work.shape));
        const std::int64_t spread =
            work.context_max - (work.context_sum + work.sequences - 1) / work.sequences;
        if (!segment || !segment->contains(work.context_sum) || spread != segment_spread) {
            segment = pricer.attention_segment(work);
            segment_spread = spread;
        }
        price = pricer.attention(*segment, work.context_sum);
    }
};

struct PlannedPath {
    CostSums constant;                   // of one layer
    std::vector<std::size_t> variables;  // of the plan
};
struct PlannedList {
    std::int64_t count = 1;
    std::vector<PlannedPath> paths;
};
struct Plan {
    std::vector<PlannedList> lists;
    std::vector<Variable> variables;
    ByteLedger constant_bytes{};
};

Variable variable_of(const Operator& op, std::int64_t count, const StepShape& shape) {
    Variable v;
    v.op = op;
    v.count = count;
    if (const auto* work = std::get_if<AttentionDecodeWork>(&op.pricing)) {
        v.context_offset = work->context_sum - shape.decode.context_sum;
        v.longest_offset = work->context_max - shape.decode.context_max;
    }
    return v;
}

// Paths of constants alone that cannot be the longest are left out.
void drop_shorter(std::vector<PlannedPath>& paths) {
    std::stable_sort(paths.begin(), paths.end(), [](const PlannedPath& a, const PlannedPath& b) {
        return a.constant.time > b.constant.time;
    });
    std::vector<PlannedPath> kept;
    for (PlannedPath& path : paths) {
        const bool shorter = std::any_of(kept.begin(), kept.end(), [&](const PlannedPath& longer) {
            return std::includes(longer.variables.begin(), longer.variables.end(), path.variables.begin(),
                                 path.variables.end());
        });
        if (!shorter) kept.push_back(std::move(path));
    }
    paths = std::move(kept);
}

Plan plan_of(const StepCost& cost, const StepShape& shape) {
    Plan plan;
    for (const PricedList& list : cost.priced_lists(shape)) {
        PlannedList planned{list.count, {}};
        std::vector<std::size_t> variable(list.operators.size());
        for (std::size_t i = 0; i < list.operators.size(); ++i) {
            const Operator& op = list.operators[i];
            if (varies(op)) {
                variable[i] = plan.variables.size();
                plan.variables.push_back(variable_of(op, list.count, shape));
                continue;
            }
            for (std::size_t o = 0; o < op.bytes.size(); ++o)
                plan.constant_bytes[o] += op.bytes[o] * list.count;
        }
        for (const std::vector<std::size_t>& path : all_paths(list.operators)) {
            PlannedPath sums;
            for (const std::size_t i : path) {
                if (varies(list.operators[i])) {
                    sums.variables.push_back(variable[i]);
                } else {
                    sums.constant.add(list.prices[i]);
                }
            }
            planned.paths.push_back(std::move(sums));
        }
        drop_shorter(planned.paths);
        plan.lists.push_back(std::move(planned));
    }
    return plan;
}

CostSums longest(const Plan& plan, const PlannedList& list) {
    const PlannedPath* best = nullptr;
    Time best_time;
    for (const PlannedPath& path : list.paths) {
        Time time = path.constant.time;
        for (const std::size_t v : path.variables) time += plan.variables[v].price.time;
        if (best != nullptr && time <= best_time) continue;
        best = &path;
        best_time = time;
    }
    CostSums sums;
    if (best == nullptr) return sums;
    sums = best->constant;
    for (const std::size_t v : best->variables) sums.add(plan.variables[v].price);
    return sums;
}

}  // namespace

struct CompiledStepCost::Impl {
    const StepCost* cost;
    std::map<PlanKey, Plan> plans;
};

CompiledStepCost::CompiledStepCost(const StepCost& cost) : impl_(std::make_unique<Impl>(Impl{&cost, {}})) {}
CompiledStepCost::~CompiledStepCost() = default;
CompiledStepCost::CompiledStepCost(CompiledStepCost&&) noexcept = default;
CompiledStepCost& CompiledStepCost::operator=(CompiledStepCost&&) noexcept = default;

StepPrice CompiledStepCost::price(const StepShape& shape) {
    if (shape.prefill.new_tokens > 0) return impl_->cost->price(shape);
    const PlanKey key = key_of(shape);
    auto found = impl_->plans.find(key);
    if (found == impl_->plans.end()) found = impl_->plans.emplace(key, plan_of(*impl_->cost, shape)).first;
    Plan& plan = found->second;

    StepPrice price;
    price.bytes = plan.constant_bytes;
    for (Variable& v : plan.variables) {
        v.renew(shape, impl_->cost->pricer());
        for (std::size_t i = 0; i < price.bytes.size(); ++i) price.bytes[i] += v.op.bytes[i] * v.count;
    }
    CostSums sums;
    sums.add(impl_->cost->pricer().host_gap());
    for (const PlannedList& list : plan.lists) sums.add(longest(plan, list), list.count);
    sums.write(price);
    return price;
}

}  // namespace kvsim
