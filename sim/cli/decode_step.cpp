#include "sim/cli/decode_step.hpp"

#include "sim/policies/form.hpp"

namespace kvsim {

DecodeStep decode_step(const LinearServing& linear, std::int64_t batch, std::int64_t context) {
    const DecodeForm policy = make_decode_form(linear);
    DecodeStep step{policy.form, {}};
    LinearWork& work = step.shape[policy.form];
    work = {.sequences = batch, .new_tokens = batch};
    if (policy.flush) {
        const std::int64_t cycle = linear.buffer_length;
        std::int64_t joined = 0;
        for (std::int64_t now = 0; now <= cycle + cycle / 2; ++now) {
            for (; joined < batch && joined * cycle / batch <= now; ++joined) policy.flush->join(now);
            policy.flush->step(now, {}, step.shape);
        }
    }
    step.shape.decode = {batch, batch * context, context};
    step.shape.logit_rows = batch;
    return step;
}

StepShape prefill_step(std::int64_t tokens, std::int64_t cached) {
    StepShape shape;
    shape.prefill = {1, tokens, cached, tokens * cached + tokens * (tokens + 1) / 2};
    shape.logit_rows = 1;
    return shape;
}

}  // namespace kvsim
