// Steps to look at one by one: decode in the middle of a long run, and a prompt.
#pragma once

#include <cstdint>

#include "sim/cost/step_shape.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/policies/form.hpp"

namespace kvsim {

struct DecodeStep {
    Form form = Form::kRecurrent;  // of the kernel that is launched
    StepShape shape;
};

// `batch` sequences with `context` cached tokens each, that have been served for long (fill_buffers), in the
// middle of a cycle of flushes. `times`: see make_decode_form.
DecodeStep decode_step(const LinearServing& linear, std::int64_t batch, std::int64_t context,
                       const LengthTimes* times = nullptr);

// The same rows with 1 + k tokens each, drafts of which all are kept: as many flushes as the step's tokens
// need. And k drafts after it, of prompts too.
void add_drafts(DecodeStep& step, int drafts);

// A chunk of one prompt, its last: the next token is sampled.
StepShape prefill_step(std::int64_t tokens, std::int64_t cached, std::int64_t sequences = 1);

}  // namespace kvsim
