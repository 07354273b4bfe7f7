// The operators of one forward pass on one rank, as an engine launches them: one list per kind of layer, one
// for the start of the step and one for its end. Sources: SGLang of 2026-08
// (`srt/models/{qwen3_5,qwen3_next,nemotron_h, kimi_linear}.py`, `layers/attention/{linear,mamba}`) and vLLM
// of 2026-07; of single kernels beside their bytes in kernels/traffic_*.hpp.
//
// Left out: padding of a batch to a captured graph size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
    RecordFormat records = RecordFormat::kBf16;

    StepContext(const ModelSpec& whole, const Parallelism& p, const EngineSteps& steps, StateFormat s,
                RecordFormat r);
};

OperatorList start_operators(const StepContext& context, const StepShape& step);
OperatorList layer_operators(const StepContext& context, const LayerKind& kind, const StepShape& step);
OperatorList end_operators(const StepContext& context, const StepShape& step);

// Layers of the same list.
struct NamedList {
    std::string name;
    std::int64_t count = 1;
    OperatorList operators;
    bool draft = false;  // of the MTP module
};
// The forward pass of the model itself.
std::vector<NamedList> forward_operators(const StepContext& context, const StepShape& step);

// Drafting, a chain of k forwards of the MTP module: the first takes in all tokens that the model has just
// seen, of prompts too, the k - 1 others one token per row that decodes and per fresh prompt. What such a
// pass holds; no tokens when there is no such pass. Later ones differ by a token of context each, and are
// taken as alike.
struct DraftPasses {
    StepShape first, later;
    std::int64_t later_count = 0;
};
DraftPasses draft_passes(const StepContext& context, const StepShape& step);
std::vector<NamedList> draft_operators(const StepContext& context, const StepShape& pass, std::int64_t count);

}  // namespace kvsim
