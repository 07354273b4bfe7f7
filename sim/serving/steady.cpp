#include "sim/serving/steady.hpp"

#include "sim/base/check.hpp"
#include "sim/policies/form.hpp"
#include "sim/serving/length_times.hpp"
#include "sim/serving/step_totals.hpp"

namespace kvsim {
namespace {

Summary constant_samples(double value, std::int64_t count) {
    return {count, value, value, value, value};
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

    StepTotals totals;
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
        if (horizon && totals.busy() + price.time > *horizon) break;
        totals.add_step(shape, price, batch);
        totals.add_gaps(price.time, batch);
        totals.add_tokens(batch);
    }

    RunResult result;
    result.requests.read = batch;
    result.requests.unfinished = batch;
    result.prompt_tokens = constant_samples(static_cast<double>(workload.context), batch);
    result.output_tokens = constant_samples(static_cast<double>(steps), batch);
    if (steps > 0)
        result.tpot_ms = constant_samples(to_ms(totals.busy()) / static_cast<double>(steps), batch);
    totals.write(result, steps < workload.steps ? *horizon : totals.busy());
    return result;
}

}  // namespace kvsim
