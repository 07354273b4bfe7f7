// How many requests fit: weights, activations, state slots, convolution windows, rings, states kept for
// verification and KV cache of one GPU under an engine's rules. "Does not fit" is a result here (requests = 0
// and the limit that binds), not an error. The only copy of these rules: what serves and what reports asks
// here.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"
#include "sim/cost/device.hpp"
#include "sim/cost/graph/engine_steps.hpp"
#include "sim/memory/engine_memory.hpp"
#include "sim/memory/serving_spec.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

// Rules and defaults of a serving engine; one YAML file each in configs/engines.
struct EngineSpec {
    std::string name;
    int max_running_requests = 0;
    int chunked_prefill_tokens = 0;  // tokens of one prefill step
    SchedulerSpec scheduler;         // who runs next
    EngineMemory memory;             // what it keeps where
    EngineSteps steps;               // how a step runs
    std::optional<PrefixCacheSpec> prefix_cache{};
};

// How the linear layers are served.
struct LinearServing {
    Form form = Form::kRecurrent;
    int buffer_length = 1;  // m; 1 means that nothing is buffered (recurrent)
    StateFormat state = StateFormat::kFp32;
    int drafts = 0;  // tokens that are verified beside the last one: T = 1 + drafts
    RecordFormat records = RecordFormat::kBf16;
    FlushSpec flush{};
    // Records that a ring holds, >= buffer_length: room for flushes that are put off. 0: buffer_length.
    int ring = 0;
    // `form: auto` and `buffer_length: auto`: a policy chooses. form is buffered then, and buffer_length as
    // long as the ring, for memory is set aside for the most that it may choose.
    bool choose_form = false;
    bool choose_length = false;
};

constexpr int ring_capacity(const LinearServing& linear) {
    return linear.ring > 0 ? linear.ring : linear.buffer_length;
}

// The form that verifies, if there are drafts, where `form` decodes without; any other form as it is.
constexpr Form with_drafts(Form form, int drafts) {
    if (drafts > 0 && form == Form::kRecurrent) return Form::kVerifyStored;
    if (drafts > 0 && form == Form::kBuffered) return Form::kVerifyBuffered;
    return form;
}

// The form of the kernels that decode or verify. A record that is folded at once was never buffered: a buffer
// of one token is the recurrent form.
constexpr Form served_form(const LinearServing& linear) {
    const Form form = with_drafts(linear.form, linear.drafts);
    return form == Form::kBuffered && linear.buffer_length == 1 ? Form::kRecurrent : form;
}

// Records of one slot's ring, C; none in forms without, nor for a buffer of one token, which is the recurrent
// form. What verification needs: DraftRecords.
int ring_records(const LinearServing& linear, DraftRecords drafts);

enum class Limit : std::uint8_t { kWeights, kStateSlots, kKvTokens, kMaxRunning, kBlocks, kBytes };
inline constexpr std::array<std::string_view, 6> kLimitNames{
    "weights", "state_slots", "kv_tokens", "max_running_requests", "blocks", "bytes"};

// What one running request occupies, by owner. Sums to total().
struct RequestBytes {
    Bytes state;      // every copy that it holds without verification
    Bytes conv;       // windows of these
    Bytes ring;       // rings of these
    Bytes temporary;  // states and windows that verification stores
    Bytes kv;
    Bytes padding;  // pages and blocks are rounded up

    Bytes total() const { return state + conv + ring + temporary + kv + padding; }
};

// Blocks of a paged pool.
struct BlockPool {
    Bytes block;                   // a page in every layer of a group
    std::int64_t page_tokens = 1;  // of an attention layer
    std::int64_t layers_per_group = 0;
    std::int64_t attention_groups = 0;
    std::int64_t state_groups = 0;
    std::int64_t states_per_request = 0;  // blocks in every state group: 1 + drafts, or less or more
    std::int64_t blocks = 0;              // that requests can have

    std::int64_t state_blocks() const { return state_groups * states_per_request; }
    std::int64_t kv_blocks(std::int64_t tokens) const {
        return attention_groups * ((tokens + page_tokens - 1) / page_tokens);
    }
};

struct Capacity {
    Bytes weights;             // of the MTP module too where there are drafts
    Bytes activations;         // and all else that is neither weights nor pools
    Bytes state_per_request;   // one copy of the state, all layers
    Bytes conv_per_request;    // one copy
    Bytes buffer_per_request;  // one ring, all layers; 0 in forms without
    Bytes kv_per_token;        // with the MTP module's where there are drafts
    Bytes state_pool;          // slots, and states stored by verification; 0 in a shared pool
    Bytes kv_pool;             // a shared pool as a whole
    RequestBytes request;
    BlockPool paged;            // of a paged pool
    int slots_per_request = 1;  // copies of the state
    // Slots and tokens that may be promised at the same time. A shared pool has no such numbers of its own:
    // there they are what as many requests as fit leave to each other.
    std::int64_t state_slots = 0;
    std::int64_t kv_tokens = 0;
    std::int64_t memory_requests = 0;  // that memory alone would hold
    std::int64_t max_running = 0;      // the engine's own limit for this GPU
    std::int64_t requests = 0;         // that run at once, each holding tokens_per_request in the KV cache
    Limit limit = Limit::kStateSlots;  // the one that binds
};

// `rank`: the model as one rank holds it (rank_model). `attention_dp`: groups over which the engine's
// requests are spread; the answer is that of one. tokens_per_request: prompt + output whose KV entries a
// running request may hold. > 0.
Capacity solve_capacity(const ModelSpec& rank, const DeviceSpec& device, const EngineSpec& engine,
                        const LinearServing& linear, std::int64_t tokens_per_request, int attention_dp = 1);

}  // namespace kvsim
