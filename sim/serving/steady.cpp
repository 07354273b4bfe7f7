#include "sim/serving/steady.hpp"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/policies/form.hpp"
#include "sim/results/collector.hpp"
#include "sim/serving/length_times.hpp"

namespace kvsim {
namespace {

// Steps cost what they would at one context, however long their rows have become.
class FixedContextPricer final : public StepPricer {
  public:
    FixedContextPricer(std::int64_t context, const StepPricer& pricer) : context_(context), pricer_(pricer) {}

    StepPrice price(const StepShape& shape) const override {
        StepShape fixed = shape;
        fixed.decode = {shape.decode.sequences, shape.decode.sequences * context_, context_};
        return pricer_.price(fixed);
    }

  private:
    std::int64_t context_;
    const StepPricer& pricer_;
};

AcceptanceSpec at_context(AcceptanceSpec spec, std::int64_t context) {
    if (!spec.half_context) return spec;
    for (double& rate : spec.rates) rate *= std::exp2(-static_cast<double>(context) / *spec.half_context);
    spec.half_context.reset();
    return spec;
}

// Row i joins before step floor(i steps / batch) of `steps`; as many follow, in which draws mix the phases.
// All of them end at time zero, where rows have had their latest token.
void join_over_a_cycle(DecodeRows& rows, const RowStart& row, std::int64_t batch, std::int64_t steps) {
    std::vector<TokenGap> gaps;
    std::vector<Slot> finished;
    std::int64_t joined = 0;
    for (std::int64_t step = 0; step < 2 * steps; ++step) {
        for (; joined < batch && joined * steps / batch <= step; ++joined) {
            RowStart next = row;
            next.slot = static_cast<Slot>(joined);
            next.request = static_cast<std::uint64_t>(joined);
            rows.join(next);
        }
        StepShape shape;
        rows.form_step(shape, {});
        rows.end_step(Time(), gaps, finished);
    }
}

}  // namespace

RunResult serve_steady(const SteadyWorkload& workload, const LinearServing& linear, const StepPricer& pricer,
                       std::optional<Time> horizon) {
    const std::int64_t batch = workload.batch;
    KVSIM_CHECK(batch >= 1 && workload.context >= 0 && workload.steps >= 1, "batch {}, context {}, {} steps",
                batch, workload.context, workload.steps);
    const PricedLengths times(pricer);
    const DecodeForm form = make_decode_form(linear, &times);
    if (form.flush) fill_buffers(*form.flush, linear, batch);

    Collector collector;
    std::int64_t steps = 0;
    for (; steps < workload.steps; ++steps) {
        StepShape shape;
        shape.decode = {batch, batch * workload.context, workload.context};
        shape.logit_rows = batch;
        if (form.flush) {
            form.flush->step(steps, {}, shape);
        } else {
            shape[form.form] = LinearWork{batch, batch, 0, 0};
        }
        const StepPrice price = pricer.price(shape);
        const Time end = collector.busy() + price.time;
        if (horizon && end > *horizon) break;
        collector.step(shape, price, batch, end);
        collector.tokens(batch);
        collector.gaps(price.time, batch, batch);
    }

    RunResult result = collector.take({steps < workload.steps ? *horizon : collector.busy(), batch});
    result.prompt_tokens = constant_summary(static_cast<double>(workload.context), batch);
    result.output_tokens = constant_summary(static_cast<double>(steps), batch);
    if (steps > 0) result.tpot_ms = constant_summary(to_ms(result.busy) / static_cast<double>(steps), batch);
    return result;
}

RunResult serve_steady_speculation(const SteadyWorkload& workload, const SampledRowsParts& given,
                                   std::optional<Time> horizon) {
    const std::int64_t batch = workload.batch;
    KVSIM_CHECK(batch >= 1 && workload.context >= 0 && workload.steps >= 1, "batch {}, context {}, {} steps",
                batch, workload.context, workload.steps);
    const FixedContextPricer pricer(workload.context, *given.pricer);
    SampledRowsParts parts = given;
    parts.pricer = &pricer;
    parts.speculation.acceptance = at_context(given.speculation.acceptance, workload.context);
    const std::unique_ptr<DecodeRows> rows = make_sampled_rows(parts);

    const std::int64_t cycle = std::max(ring_records(parts.linear, parts.draft_records), 1);
    const std::int64_t most_tokens = 1 + parts.speculation.most_drafts();
    const std::int64_t context = std::max<std::int64_t>(workload.context, 1);
    const std::int64_t most_steps = (kMostRowTokens - context) / most_tokens - 2 * cycle - 1;
    if (workload.steps > most_steps) {
        throw_mistake({}, "workload.steps",
                      fmt::format("expected at most {} with drafts, got {}", most_steps, workload.steps));
    }
    join_over_a_cycle(*rows, {.context = context, .remaining = kMostRowTokens - context}, batch, cycle);
    std::vector<std::int64_t> before;
    for (std::int64_t row = 0; row < batch; ++row) before.push_back(rows->yielded(static_cast<Slot>(row)));

    Collector collector;
    std::vector<TokenGap> gaps;
    std::vector<Slot> finished;
    std::int64_t steps = 0;
    for (; steps < workload.steps; ++steps) {
        StepShape shape;
        rows->form_step(shape, {});
        const StepPrice price = pricer.price(shape);
        const Time end = collector.busy() + price.time;
        if (horizon && end > *horizon) break;
        collector.step(shape, price, batch, end);
        gaps.clear();
        collector.tokens(rows->end_step(end, gaps, finished));
        for (const TokenGap& gap : gaps) collector.gaps(gap.gap, gap.count, gap.tokens);
    }

    RunResult result = collector.take({steps < workload.steps ? *horizon : collector.busy(), batch});
    result.prompt_tokens = constant_summary(static_cast<double>(workload.context), batch);
    std::vector<std::int64_t> tokens;
    std::vector<double> tpot;
    for (std::int64_t row = 0; row < batch; ++row) {
        const auto slot = static_cast<Slot>(row);
        tokens.push_back(steps > 0 ? rows->yielded(slot) - before[slot] : 0);
        if (steps > 0) tpot.push_back(to_ms(result.busy) / static_cast<double>(tokens.back()));
    }
    result.output_tokens = summarise(tokens, 1.0);
    result.tpot_ms = summarise(tpot);
    result.output_tokens.ci95 = result.tpot_ms.ci95 = std::nullopt;  // rows follow each other in no time
    return result;
}

}  // namespace kvsim
