#include "sim/cost/step_plan.hpp"

#include <algorithm>

#include "sim/base/check.hpp"
#include "sim/cost/graph/list_builder.hpp"

namespace kvsim {

namespace {

// A step of n tokens that shows every operator which tokens determine.
StepShape sample_step(std::int64_t n, bool prompts) {
    StepShape shape;
    if (prompts) {
        shape.prefill = {1, n, 0, 1};
    } else {
        shape[Form::kRecurrent] = {n, n};
        shape.decode = {n, n, 1};
    }
    return shape;
}

template <class Use>
void for_each_number(const StepShape& shape, Use&& use) {
    for (std::size_t f = 0; f < shape.linear.size(); ++f) {
        use(2 * f, shape.linear[f].sequences);
        use(2 * f + 1, shape.linear[f].new_tokens);
    }
    constexpr std::size_t kRest = 2 * kFormCount;
    use(kRest, shape.decode.sequences);
    use(kRest + 1, shape.logit_rows);
    use(kRest + 2, shape.drafts);
    use(kRest + 3, shape.state_copies);
    use(kRest + 4, shape.folds.states);
    use(kRest + 5, shape.folds.records);
}

Bytes& owned(ByteLedger& bytes, Owner owner) {
    return bytes[static_cast<std::size_t>(owner)];
}

// Numbers of tokens beyond which the second stream is not used.
std::vector<std::int64_t> overlap_cuts(const StepContext& c) {
    return {c.engine.overlap_tokens, c.engine.overlap_tokens / c.parallelism.attention_dp};
}

}  // namespace

// ---- plans ----

PlanKey::PlanKey(const StepShape& shape) {
    for_each_number(shape, [this](std::size_t i, std::int64_t n) { numbers[i] = n; });
}

bool PlanKey::is_of(const StepShape& shape) const {
    std::int64_t differences = 0;
    for_each_number(shape, [&](std::size_t i, std::int64_t n) { differences |= numbers[i] ^ n; });
    return differences == 0;
}

std::size_t PlanKey::hash() const {
    std::uint64_t h = 0;
    for (const std::int64_t n : numbers) h = (h ^ static_cast<std::uint64_t>(n)) * 0x9e3779b97f4a7c15U;
    return static_cast<std::size_t>(h >> 32);
}

void StepPlan::clear() {
    constant = {};
    folds = {};
    linear.clear();
    attention.clear();
    beside_layers = 0;
    beside_attention = {};
    beside_linear = {};
}

void LinearTerm::add_bytes(const LinearShape& shape, ByteLedger& bytes) const {
    const LinearTraffic traffic = linear_traffic(shape, form, launch->work);
    owned(bytes, Owner::kStateRead) += Bytes(traffic.state_read) * layers;
    owned(bytes, Owner::kStateWrite) += Bytes(traffic.state_write) * layers;
    owned(bytes, Owner::kBufferRead) += Bytes(traffic.buffer_read) * layers;
    owned(bytes, Owner::kBufferWrite) += Bytes(traffic.buffer_write) * layers;
}

void AttentionTerm::renew(const DecodeAttentionShape& contexts, const OperatorPricer& pricer) {
    DecodeAttentionShape now = contexts;
    now.sequences += beyond.sequences;
    now.context_sum += beyond.context_sum;
    now.context_max += beyond.context_max;
    set_contexts(op, now, tokens_per_row);
    const auto& work = std::get<AttentionDecodeWork>(op.pricing);
    if (!segment || !segment->covers(work)) segment = pricer.attention_segment(work);
    price = pricer.attention(*segment, work.context_sum);
}

StepPrice StepPlan::price(const StepShape& shape, LinearPrices* linear_prices, const OperatorPricer& pricer) {
    StepPrice price;
    price.bytes = constant.bytes;
    price.flush_time = folds;
    CostSums sums = constant.cost;
    for (LinearTerm& term : linear) {
        term.launch = &linear_prices->at(term.form, shape[term.form]);
        term.add_bytes(linear_prices->part().shape, price.bytes);
        term.add_to(sums, term.serial);
        price.flush_time += term.flushes() * term.serial;
    }
    for (AttentionTerm& term : attention) {
        term.renew(shape.decode, pricer);
        owned(price.bytes, Owner::kKvRead) +=
            term.op.bytes[static_cast<std::size_t>(Owner::kKvRead)] * term.layers;
        sums.add(term.price, term.serial);
    }
    if (beside_layers > 0) price.flush_time += add_beside(sums);
    sums.write(price, pricer);
    return price;
}

Time StepPlan::add_beside(CostSums& sums) const {
    CostSums with_linear = beside_linear;
    Time flushes;
    for (const LinearTerm& term : linear) {
        term.add_to(with_linear, 1);
        flushes += term.flushes();
    }
    CostSums with_attention = beside_attention;
    for (const AttentionTerm& term : attention) {
        if (term.serial < term.layers) with_attention.add(term.price);
    }
    const Time longer = std::max(with_attention.time, with_linear.time);
    const Time without = std::max(with_attention.time, with_linear.time - flushes);
    sums.add(with_attention.time > with_linear.time ? with_attention : with_linear, beside_layers);
    return (longer - without) * beside_layers;
}

// ---- passes ----

PlannedPass::PlannedPass(const StepCost& cost, Lists lists, std::vector<std::int64_t> layers)
    : pricer_(cost.pricer()),
      tokens_{
          SumTable(
              pricer_,
              [&cost, lists](std::int64_t n) { return lists(cost.context(), sample_step(n, false)); },
              Driver::kTokens, overlap_cuts(cost.context())),
          SumTable(
              pricer_, [&cost, lists](std::int64_t n) { return lists(cost.context(), sample_step(n, true)); },
              Driver::kTokens, overlap_cuts(cost.context()))},
      logits_(pricer_,
              [&cost, lists](std::int64_t n) {
                  StepShape shape = sample_step(1, false);
                  shape.logit_rows = n;
                  return lists(cost.context(), shape);
              },
              Driver::kLogits, {}) {
    const StepContext& c = cost.context();
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerKind& kind = c.model.kinds[i];
        if (layers[i] == 0) continue;
        if (kind.linear) {
            PartWeights weights(kvsim::weights(*kind.linear, c.model.hidden), c.model);
            linear_.emplace(linear_part(c, *kind.linear, weights), pricer_);
            linear_layers_ += layers[i];
        }
        if (!kind.attention) continue;
        AttentionKind attention;
        PartWeights weights(kvsim::weights(*kind.attention, c.model.hidden), c.model);
        attention.part =
            std::visit([&](const auto& m) { return attention_part(m, weights); }, *kind.attention);
        attention.layers = layers[i];
        attention.with_linear = kind.linear ? layers[i] : 0;
        const auto same = std::ranges::find_if(attention_, [&](const AttentionKind& a) {
            return a.part == attention.part && (a.with_linear == 0) == (attention.with_linear == 0);
        });
        if (same == attention_.end()) {
            attention_.push_back(attention);
        } else {
            same->layers += attention.layers;
            same->with_linear += attention.with_linear;
        }
    }
}

void PlannedPass::add(const StepShape& shape, std::int64_t times, const DecodeAttentionShape& beyond,
                      StepPlan& plan) {
    const TokenSums& tokens = tokens_[shape.prefill.new_tokens > 0 ? 1 : 0].at(shape.tokens());
    const auto add = [&](const PassSums& sums) {
        plan.constant.cost.add(sums.cost, times);
        for (std::size_t o = 0; o < sums.bytes.size(); ++o) plan.constant.bytes[o] += sums.bytes[o] * times;
    };
    add(tokens.serial);
    const std::int64_t beside = tokens.beside_layers;
    if (beside > 0) {
        KVSIM_CHECK(plan.beside_layers == 0 && times == 1, "mixers side by side in two passes");
        plan.beside_layers = beside;
        plan.beside_attention = tokens.attention;
        plan.beside_linear = tokens.linear;
    }
    if (shape.logit_rows > 0) add(logits_.at(shape.logit_rows).serial);
    if (linear_) add_linear(shape, beside, times, plan);
    for (const AttentionKind& kind : attention_)
        add_attention(kind, shape, kind.with_linear > 0 ? beside : 0, times, beyond, plan);
}

void PlannedPass::add_linear(const StepShape& shape, std::int64_t beside, std::int64_t times,
                             StepPlan& plan) {
    scratch_.clear();
    append_linear(linear_->part(), shape, scratch_);
    for (Operator& op : scratch_) {
        const std::int64_t layers = linear_layers_ * times;
        if (const auto* decode = std::get_if<LinearDecode>(&op.pricing)) {
            plan.linear.push_back({decode->form, layers, layers - beside, nullptr});
            for (const Owner o : {Owner::kWeights, Owner::kActivations})
                owned(plan.constant.bytes, o) += owned(op.bytes, o) * layers;
            continue;
        }
        const OperatorPrice price = pricer_.price(op);
        plan.constant.cost.add(price, layers - beside);
        for (std::size_t o = 0; o < op.bytes.size(); ++o) plan.constant.bytes[o] += op.bytes[o] * layers;
        if (beside > 0) plan.beside_linear.add(price);
    }
}

void PlannedPass::add_attention(const AttentionKind& kind, const StepShape& shape, std::int64_t beside,
                                std::int64_t times, const DecodeAttentionShape& beyond, StepPlan& plan) {
    scratch_.clear();
    append_attention(kind.part, shape, scratch_);
    for (Operator& op : scratch_) {
        const std::int64_t layers = kind.layers * times;
        if (const auto* decode = std::get_if<AttentionDecodeWork>(&op.pricing)) {
            const std::int64_t tokens = (decode->context_sum - shape.decode.context_sum) / decode->sequences;
            plan.attention.push_back({op, layers, layers - beside, tokens, beyond, {}, {}});
            for (const Owner o : {Owner::kKvWrite, Owner::kActivations})
                owned(plan.constant.bytes, o) += owned(op.bytes, o) * layers;
            continue;
        }
        const OperatorPrice price = pricer_.price(op);
        plan.constant.cost.add(price, layers - beside);
        for (std::size_t o = 0; o < op.bytes.size(); ++o) plan.constant.bytes[o] += op.bytes[o] * layers;
        if (beside > 0) plan.beside_attention.add(price);
    }
}

}  // namespace kvsim
