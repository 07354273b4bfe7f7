// The operators of one forward pass on one rank, as an engine launches them: one list per kind of layer, one
// for the start of the step and one for its end. Sources: SGLang of 2026-08
// (`srt/models/{qwen3_5,qwen3_next,nemotron_h, kimi_linear}.py`, `layers/attention/{linear,mamba}`) and vLLM
// of 2026-07; of single kernels beside their bytes in kernels/traffic_*.hpp.
//
// Left out: padding of a batch to a captured graph size; snapshots of states for prefix caching.
#pragma once

#include "sim/cost/graph/engine_steps.hpp"
#include "sim/cost/graph/operator.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/model/model.hpp"
#include "sim/model/rank.hpp"

namespace kvsim {

// What does not change from step to step.
struct StepContext {
    ModelSpec model;  // of one rank
    Parallelism parallelism;
    EngineSteps engine;  // as it serves this model
    StateFormat state = StateFormat::kFp32;

    StepContext(const ModelSpec& whole, const Parallelism& p, const EngineSteps& steps, StateFormat s);
};

OperatorList start_operators(const StepContext& context, const StepShape& step);
OperatorList layer_operators(const StepContext& context, const LayerKind& kind, const StepShape& step);
OperatorList end_operators(const StepContext& context, const StepShape& step);

}  // namespace kvsim
