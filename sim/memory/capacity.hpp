// How many requests fit: weights, state slots, convolution windows, rings and KV cache of one GPU under an engine's rules.
// "Does not fit" is a result here (requests = 0 and the limit that binds), not an error.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"
#include "sim/cost/device.hpp"
#include "sim/cost/graph/engine_steps.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

// Rules and defaults of a serving engine; one YAML file each in configs/engines.
// SGLang: rest = free after weights - total (1 - mem_fraction_static); states get rest r/(1 + r), KV the remainder.
struct EngineSpec {
    std::string name;
    double mem_fraction_static = 0.0;
    double state_memory_ratio = 0.0;     // r, --mamba-full-memory-ratio
    int state_slots_per_request = 1;     // q: 1 with the radix cache off
    int max_running_requests = 0;
    int chunked_prefill_tokens = 0;      // tokens of one prefill step
    EngineSteps steps;                   // how a step runs
};

// How the linear layers are served.
struct LinearServing {
    Form form = Form::kRecurrent;
    int buffer_length = 1;               // m; 1 means that nothing is buffered (recurrent)
    StateFormat state = StateFormat::kFp32;
};

enum class Limit : std::uint8_t { kWeights, kStateSlots, kKvTokens, kMaxRunning };
inline constexpr std::array<std::string_view, 4> kLimitNames{"weights", "state_slots", "kv_tokens",
                                                             "max_running_requests"};

struct Capacity {
    Bytes weights;
    Bytes state_per_request;             // one copy of the state, all layers
    Bytes conv_per_request;              // one copy
    Bytes buffer_per_request;            // the ring, all layers; 0 in recurrent form
    Bytes kv_per_token;
    Bytes state_pool;                    // budget for slots (state + conv + ring each)
    Bytes kv_pool;
    int slots_per_request = 1;
    std::int64_t state_slots = 0;
    std::int64_t kv_tokens = 0;
    std::int64_t requests = 0;           // that run at once, each holding tokens_per_request in the KV cache
    Limit limit = Limit::kStateSlots;    // the one that binds
};

// tokens_per_request: prompt + output whose KV entries a running request may hold. > 0.
Capacity solve_capacity(const ModelSpec& model, const DeviceSpec& device, const EngineSpec& engine,
                        const LinearServing& linear, std::int64_t tokens_per_request);

}  // namespace kvsim
