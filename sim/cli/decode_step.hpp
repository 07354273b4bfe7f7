// Steps to look at one by one: decode in the middle of a long run, and a prompt.
#pragma once

#include <cstdint>

#include "sim/cost/step_shape.hpp"
#include "sim/memory/capacity.hpp"

namespace kvsim {

struct DecodeStep {
    Form form = Form::kRecurrent;  // of the kernel that is launched
    StepShape shape;
};

// `batch` sequences with `context` cached tokens each; their phases in the flush cycle are spread evenly.
DecodeStep decode_step(const LinearServing& linear, std::int64_t batch, std::int64_t context);

// A chunk of one prompt, its last: the next token is sampled.
StepShape prefill_step(std::int64_t tokens, std::int64_t cached);

}  // namespace kvsim
