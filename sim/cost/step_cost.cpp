#include "sim/cost/step_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/graph/layer_graph.hpp"

namespace kvsim {

namespace {

std::vector<Time> durations(const PricedList& list) {
    std::vector<Time> times;
    for (const OperatorPrice& p : list.prices) times.push_back(p.time);
    return times;
}

}  // namespace

CostSums& CostSums::add(const CostSums& other, std::int64_t count) {
    time += other.time * count;
    for (std::size_t i = 0; i < by_source.size(); ++i) by_source[i] += other.by_source[i] * count;
    linear += other.linear * count;
    full_power += other.full_power * count;
    return *this;
}

void CostSums::write(StepPrice& price, const OperatorPricer& pricer) const {
    price.time = time;
    price.time_by_source = by_source;
    price.linear_time = linear;
    if (full_power <= pricer.time_at_full_power()) return;
    CostSums all = *this;
    all.add(pricer.power_limit(full_power));
    price.time = all.time;
    price.time_by_source = all.by_source;
}

namespace {

// Drafts come from an MTP module of attention layers.
void check_drafts(const StepCostParts& parts) {
    if (parts.drafts == 0) return;
    const ModelSpec& model = parts.model;
    Mistake mistake;
    mistake.place.file = "model " + model.name;
    mistake.path = "drafts";
    mistake.message = fmt::format(
        "expected a model with a multi-token prediction module for {} drafts, got one without", parts.drafts);
    if (model.mtp_pattern.empty()) throw ConfigError(mistake);
    for (const char letter : model.mtp_pattern) {
        mistake.message =
            fmt::format("linear attention in the multi-token prediction module (layer {})", letter);
        if (model.kind(letter).linear) throw ConfigError(mistake);
    }
}

}  // namespace

struct StepCost::Impl {
    StepContext context;
    OperatorPricer pricer;

    explicit Impl(StepCostParts parts)
        : context(parts.model, parts.parallelism, parts.engine, parts.state, parts.records),
          pricer(std::move(parts.operators), std::move(parts.linear), context.engine) {}

    void add_priced(std::vector<NamedList> lists, std::vector<PricedList>& priced) const {
        for (NamedList& list : lists) {
            PricedList& last = priced.emplace_back(PricedList{std::move(list), {}});
            for (const Operator& op : last.operators) last.prices.push_back(pricer.price(op));
        }
    }

    CostSums sums(const std::vector<PricedList>& lists) const {
        CostSums sums;
        sums.add(pricer.host_gap());
        for (const PricedList& list : lists) {
            for (const std::size_t i : critical_path(list.operators, durations(list)).operators)
                sums.add(list.prices[i], list.count);
        }
        return sums;
    }
};

StepCost::StepCost(StepCostParts parts) {
    check_drafts(parts);
    impl_ = std::make_unique<Impl>(std::move(parts));
}
StepCost::~StepCost() = default;
StepCost::StepCost(StepCost&&) noexcept = default;
StepCost& StepCost::operator=(StepCost&&) noexcept = default;

const StepContext& StepCost::context() const {
    return impl_->context;
}

const OperatorPricer& StepCost::pricer() const {
    return impl_->pricer;
}

std::vector<PricedList> StepCost::priced_lists(const StepShape& shape) const {
    KVSIM_CHECK(shape.tokens() > 0, "a step without tokens");
    const StepContext& context = impl_->context;
    KVSIM_CHECK(shape.drafts == 0 || !context.model.mtp_pattern.empty(), "{} drafts of a model without any",
                shape.drafts);
    std::vector<PricedList> lists;
    impl_->add_priced(forward_operators(context, shape), lists);
    if (shape.drafts == 0) return lists;
    const DraftPasses passes = draft_passes(context, shape);
    impl_->add_priced(draft_operators(context, passes.first, 1), lists);
    if (passes.later_count > 0)
        impl_->add_priced(draft_operators(context, passes.later, passes.later_count), lists);
    return lists;
}

StepPrice StepCost::price(const StepShape& shape) const {
    const std::vector<PricedList> lists = priced_lists(shape);
    StepPrice price;
    const CostSums sums = impl_->sums(lists);
    sums.write(price, impl_->pricer);
    for (const PricedList& list : lists) {
        for (const Operator& op : list.operators) {
            for (std::size_t i = 0; i < op.bytes.size(); ++i) price.bytes[i] += op.bytes[i] * list.count;
        }
    }
    StepShape unflushed = shape;
    unflushed.folds = {};
    std::int64_t flushes = shape.folds.states;
    for (LinearWork& work : unflushed.linear) {
        flushes += work.flushes;
        work.flushes = 0;
        work.flushed_tokens = 0;
    }
    if (flushes > 0) price.flush_time = sums.time - impl_->sums(priced_lists(unflushed)).time;
    return price;
}

Time step_uncertainty(std::span<const OperatorCost> operators) {
    std::array<double, kCostFamilyCount> deviation{};
    for (const OperatorCost& op : operators) {
        if (op.critical) deviation[static_cast<std::size_t>(op.family)] += to_us(op.time) * op.uncertainty;
    }
    double squares = 0.0;
    for (const double us : deviation) squares += us * us;
    return time_from_us(std::sqrt(squares));
}

std::vector<OperatorCost> StepCost::explain(const StepShape& shape) const {
    std::vector<OperatorCost> rows;
    const auto row_of = [&](const std::string& name, const OperatorPrice& price,
                            bool critical) -> OperatorCost& {
        // Kinds of layers share parts; what is alike is one line.
        const auto same = std::find_if(rows.begin(), rows.end(), [&](const OperatorCost& r) {
            return r.name == name && r.critical == critical && r.source == price.source &&
                   r.bound == price.bound && price.time * r.count == r.time;
        });
        if (same != rows.end()) return *same;
        OperatorCost row;
        row.name = name;
        row.bound = price.bound;
        row.source = price.source;
        row.family = price.family;
        row.uncertainty = price.uncertainty;
        row.critical = critical;
        return rows.emplace_back(std::move(row));
    };
    const std::vector<PricedList> lists = priced_lists(shape);
    for (const PricedList& list : lists) {
        const std::vector<std::size_t> path = critical_path(list.operators, durations(list)).operators;
        for (std::size_t i = 0; i < list.operators.size(); ++i) {
            const Operator& op = list.operators[i];
            const bool critical = std::find(path.begin(), path.end(), i) != path.end();
            const std::string name = (list.draft ? "draft." : "") + std::string(op.name);
            OperatorCost& row = row_of(name, list.prices[i], critical);
            row.count += list.count;
            row.launches += op.launches * list.count;
            for (std::size_t o = 0; o < op.bytes.size(); ++o) row.bytes[o] += op.bytes[o] * list.count;
            row.flops += Flops(op.flops * list.count);
            row.time += list.prices[i].time * list.count;
            row.gap += list.prices[i].gap * list.count;
        }
    }
    const auto add_whole = [&](const char* name, const OperatorPrice& price) {
        if (price.time <= Time()) return;
        OperatorCost row;
        row.name = name;
        row.count = 1;
        row.time = price.time;
        row.bound = price.bound;
        row.source = price.source;
        row.family = price.family;
        row.uncertainty = price.uncertainty;
        rows.push_back(std::move(row));
    };
    add_whole("power_limit", impl_->pricer.power_limit(impl_->sums(lists).full_power));
    add_whole("host_gap", impl_->pricer.host_gap());
    return rows;
}

std::string StepCost::graphviz(const StepShape& shape) const {
    const std::vector<PricedList> lists = priced_lists(shape);
    std::vector<NamedGraph> graphs;
    for (const PricedList& list : lists) {
        NamedGraph graph{
            list.count > 1 ? fmt::format("{} x {}", list.name, list.count) : list.name, &list.operators, {}};
        const std::vector<std::size_t> path = critical_path(list.operators, durations(list)).operators;
        for (std::size_t i = 0; i < list.operators.size(); ++i) {
            graph.labels.push_back(
                {fmt::format("{}\\n{:.2f} us, {}", list.operators[i].name, to_us(list.prices[i].time),
                             kSourceNames[static_cast<std::size_t>(list.prices[i].source)]),
                 std::find(path.begin(), path.end(), i) != path.end()});
        }
        graphs.push_back(std::move(graph));
    }
    return to_graphviz(graphs);
}

}  // namespace kvsim
