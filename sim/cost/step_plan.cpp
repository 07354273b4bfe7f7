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

// Numbers of tokens beyond which the second stream is not used.
std::vector<std::int64_t> overlap_cuts(const StepContext& c) {
    return {c.engine.overlap_tokens, c.engine.overlap_tokens / c.parallelism.attention_dp};
}

}  // namespace

// ---- plans ----

PlanKey::PlanKey(const StepShape& shape) {
    std::size_t i = 0;
    for (const LinearWork& w : shape.linear) {
        numbers[i++] = w.sequences;
        numbers[i++] = w.new_tokens;
    }
    numbers[i++] = shape.decode.sequences;
    numbers[i++] = shape.logit_rows;
    numbers[i++] = shape.drafts;
    numbers[i++] = shape.state_copies;
}

std::size_t PlanKey::hash() const {
    std::uint64_t h = 0;
    for (const std::int64_t n : numbers) h = (h ^ static_cast<std::uint64_t>(n)) * 0x9e3779b97f4a7c15U;
    return static_cast<std::size_t>(h >> 32);
}

void StepPlan::clear() {
    constant = {};
    linear.clear();
    attention.clear();
    beside_layers = 0;
    beside_attention = {};
    beside_linear = {};
}

void LinearTerm::renew(const LinearPart& part, const LinearWork& work, const OperatorPricer& pricer) {
    LinearWork plain = work;
    plain.flushes = 0;
    plain.flushed_tokens = 0;
    if (!timer) {
        set_work(op, part, plain);
        unflushed = pricer.price(op).time;
        set_work(op, part, work);
        price = pricer.price(op);
        return;
    }
    price = pricer.linear(op, *timer, set_work(op, part, work));
    unflushed = price.time;
    if (work.flushes > 0) {
        const LinearShape& shape = part.shape;
        unflushed =
            timer->time(plain, linear_traffic(shape, std::get<LinearDecode>(op.pricing).form, plain)).time;
    }
}

void AttentionTerm::renew(const DecodeAttentionShape& contexts, const OperatorPricer& pricer) {
    DecodeAttentionShape now = contexts;
    now.context_sum += verified;
    now.context_max += verified / contexts.sequences;
    set_contexts(op, now, tokens_per_row);
    const auto& work = std::get<AttentionDecodeWork>(op.pricing);
    if (!segment || !segment->covers(work)) segment = pricer.attention_segment(work);
    price = pricer.attention(*segment, work.context_sum);
}

StepPrice StepPlan::price(const StepShape& shape, const LinearPart* part, const OperatorPricer& pricer) {
    PassSums sums = constant;
    Time flushes;
    CostSums beside = beside_linear;
    Time beside_flushes;
    for (LinearTerm& term : linear) {
        term.renew(*part, shape[std::get<LinearDecode>(term.op.pricing).form], pricer);
        for (std::size_t o = 0; o < sums.bytes.size(); ++o) sums.bytes[o] += term.op.bytes[o] * term.layers;
        sums.cost.add(term.price, term.serial);
        flushes += (term.price.time - term.unflushed) * term.serial;
        if (beside_layers == 0) continue;
        beside.add(term.price);
        beside_flushes += term.price.time - term.unflushed;
    }
    for (AttentionTerm& term : attention) {
        term.renew(shape.decode, pricer);
        for (std::size_t o = 0; o < sums.bytes.size(); ++o) sums.bytes[o] += term.op.bytes[o] * term.layers;
        sums.cost.add(term.price, term.serial);
    }
    if (beside_layers > 0) {
        CostSums other = beside_attention;
        for (const AttentionTerm& term : attention) {
            if (term.serial < term.layers) other.add(term.price);
        }
        const Time without = std::max(other.time, beside.time - beside_flushes);
        flushes += (std::max(other.time, beside.time) - without) * beside_layers;
        sums.cost.add(other.time > beside.time ? other : beside, beside_layers);
    }
    StepPrice price;
    price.bytes = sums.bytes;
    price.flush_time = flushes;
    sums.cost.write(price);
    return price;
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
            linear_ = linear_part(c, *kind.linear, weights);
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

void PlannedPass::add(const StepShape& shape, std::int64_t times, std::int64_t verified, StepPlan& plan) {
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
        add_attention(kind, shape, kind.with_linear > 0 ? beside : 0, times, verified, plan);
}

void PlannedPass::add_linear(const StepShape& shape, std::int64_t beside, std::int64_t times,
                             StepPlan& plan) {
    scratch_.clear();
    append_linear(*linear_, shape, scratch_);
    for (Operator& op : scratch_) {
        const std::int64_t layers = linear_layers_ * times;
        if (const auto* decode = std::get_if<LinearDecode>(&op.pricing)) {
            plan.linear.push_back({op, pricer_.linear_timer(*decode), layers, layers - beside, {}, {}});
            continue;
        }
        const OperatorPrice price = pricer_.price(op);
        plan.constant.cost.add(price, layers - beside);
        for (std::size_t o = 0; o < op.bytes.size(); ++o) plan.constant.bytes[o] += op.bytes[o] * layers;
        if (beside > 0) plan.beside_linear.add(price);
    }
}

void PlannedPass::add_attention(const AttentionKind& kind, const StepShape& shape, std::int64_t beside,
                                std::int64_t times, std::int64_t verified, StepPlan& plan) {
    scratch_.clear();
    append_attention(kind.part, shape, scratch_);
    for (Operator& op : scratch_) {
        const std::int64_t layers = kind.layers * times;
        if (const auto* decode = std::get_if<AttentionDecodeWork>(&op.pricing)) {
            const std::int64_t tokens = (decode->context_sum - shape.decode.context_sum) / decode->sequences;
            plan.attention.push_back({op, layers, layers - beside, tokens, verified, {}, {}});
            continue;
        }
        const OperatorPrice price = pricer_.price(op);
        plan.constant.cost.add(price, layers - beside);
        for (std::size_t o = 0; o < op.bytes.size(); ++o) plan.constant.bytes[o] += op.bytes[o] * layers;
        if (beside > 0) plan.beside_attention.add(price);
    }
}

}  // namespace kvsim
