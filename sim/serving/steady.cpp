#include "sim/serving/steady.hpp"

#include "sim/base/check.hpp"
#include "sim/policies/form.hpp"
#include "sim/results/collector.hpp"
#include "sim/serving/length_times.hpp"

namespace kvsim {

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

}  // namespace kvsim
