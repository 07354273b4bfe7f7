#include "sim/cli/decode_step.hpp"

#include <algorithm>
#include <utility>

namespace kvsim {

DecodeStep decode_step(const LinearServing& linear, std::int64_t batch, std::int64_t context,
                       const LengthTimes* times) {
    const DecodeForm policy = make_decode_form(linear, times);
    DecodeStep step{policy.form, {}};
    if (policy.flush) {
        fill_buffers(*policy.flush, linear, batch);
        for (std::int64_t now = 0; now <= linear.buffer_length / 2; ++now) {
            step.shape = {};
            policy.flush->step(now, {}, step.shape);
        }
        if (step.shape[policy.form].sequences == 0) step.form = Form::kRecurrent;
    } else {
        step.shape[policy.form] = {.sequences = batch, .new_tokens = batch};
    }
    step.shape.decode = {batch, batch * context, context};
    step.shape.logit_rows = batch;
    return step;
}

void add_drafts(DecodeStep& step, int drafts) {
    StepShape& shape = step.shape;
    shape.drafts = drafts;
    if (drafts == 0) return;
    for (const Form form : {Form::kRecurrent, Form::kBuffered}) {
        const LinearWork decode = std::exchange(shape[form], {});
        LinearWork& verify = shape[with_drafts(form, drafts)];
        verify = decode;
        verify.new_tokens = decode.sequences * (1 + drafts);
        verify.flushes = std::min(decode.sequences, decode.flushes * (1 + drafts));
        if (decode.flushes > 0)
            verify.flushed_tokens = decode.flushed_tokens / decode.flushes * verify.flushes;
    }
    shape.logit_rows += shape.decode.sequences * drafts;
    step.form = with_drafts(step.form, drafts);
}

StepShape prefill_step(std::int64_t tokens, std::int64_t cached, std::int64_t sequences) {
    StepShape shape;
    shape.prefill = {sequences, sequences * tokens, sequences * cached,
                     sequences * (tokens * cached + tokens * (tokens + 1) / 2)};
    shape.logit_rows = sequences;
    return shape;
}

}  // namespace kvsim
