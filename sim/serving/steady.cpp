#include "sim/serving/steady.hpp"

#include <vector>

#include "sim/base/check.hpp"
#include "sim/policies/form.hpp"
#include "sim/serving/step_totals.hpp"

namespace kvsim {
namespace {

// Lets rows join over the m - 1 steps before step 0, so that each has its records when that begins.
void fill_buffers(FlushPolicy& flush, std::int64_t batch, std::int64_t length) {
    std::vector<std::int64_t> rows_with(static_cast<std::size_t>(length), 0);
    for (std::int64_t i = 0; i < batch; ++i) ++rows_with[static_cast<std::size_t>(i * length / batch)];
    for (std::int64_t fill = length - 1; fill >= 0; --fill) {
        for (std::int64_t i = 0; i < rows_with[static_cast<std::size_t>(fill)]; ++i) flush.join(-fill);
        if (fill == 0) continue;
        StepShape before;
        flush.step(-fill, {}, before);
    }
}

Summary constant_samples(double value, std::int64_t count) {
    return {count, value, value, value, value};
}

}  // namespace

RunResult serve_steady(const SteadyWorkload& workload, const LinearServing& linear, const StepPricer& pricer,
                       std::optional<Time> horizon) {
    const std::int64_t batch = workload.batch;
    KVSIM_CHECK(batch >= 1 && workload.context >= 0 && workload.steps >= 1, "batch {}, context {}, {} steps",
                batch, workload.context, workload.steps);
    const DecodeForm form = make_decode_form(linear);
    if (form.flush) fill_buffers(*form.flush, batch, linear.buffer_length);

    StepShape shape;
    shape.decode = {batch, batch * workload.context, workload.context};
    shape.logit_rows = batch;
    StepTotals totals;
    std::int64_t steps = 0;
    for (; steps < workload.steps; ++steps) {
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
