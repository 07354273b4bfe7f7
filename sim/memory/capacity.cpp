#include "sim/memory/capacity.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/traffic_linear.hpp"
#include "sim/base/check.hpp"
#include "sim/memory/activations.hpp"
#include "sim/model/parameters.hpp"
#include "sim/model/request_bytes.hpp"

namespace kvsim {

namespace {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}
std::int64_t round_up(std::int64_t value, std::int64_t unit) {
    return ceil_div(value, unit) * unit;
}

// A model without layers of a kind needs no memory of that kind: then that pool never binds.
std::int64_t units_that_fit(Bytes pool, Bytes unit) {
    return unit.value() > 0 ? std::max<std::int64_t>(0, pool.value() / unit.value()) : kUnlimited;
}

// Columns that a window needs so that it can be taken back to any of the tokens under verification.
Bytes draft_columns(const ModelSpec& model, const Capacity& c, const LinearServing& linear) {
    const LinearMixer* mixer = linear_mixer(model);
    if (mixer == nullptr || mixer->conv_kernel < 2) return Bytes(0);
    return Bytes(c.conv_per_request.value() / (mixer->conv_kernel - 1) * linear.drafts);
}

// Everything of the problem that the pools' rules share. `memory` is what is left for the pools.
struct Problem {
    const ModelSpec& model;
    const LinearServing& linear;
    std::int64_t tokens;
    Bytes memory;

    bool stores_states() const { return served_form(linear) == Form::kVerifyStored; }
};

// The engine's own limit is named only where memory would hold more.
void bind(Capacity& c, std::int64_t memory_requests, Limit memory_limit) {
    c.memory_requests = memory_requests;
    c.requests = std::min(memory_requests, c.max_running);
    c.limit = memory_requests < c.max_running ? memory_limit : Limit::kMaxRunning;
}

void solve(const SplitPools& rule, const Problem& p, Capacity& c) {
    const std::int64_t q = rule.slots_per_request;
    KVSIM_CHECK(q > 0 && rule.page_tokens > 0, "{} slots per request, pages of {} tokens", q,
                rule.page_tokens);
    const Bytes copy = c.state_per_request + c.conv_per_request;
    const Bytes slot = copy + c.buffer_per_request;
    const Bytes temporary = p.stores_states() ? copy * (1 + p.linear.drafts) : Bytes(0);
    const std::int64_t kv_page = (c.kv_per_token * rule.page_tokens).value();
    c.slots_per_request = rule.slots_per_request;
    c.request = {c.state_per_request * q,   c.conv_per_request * q,
                 c.buffer_per_request * q,  temporary,
                 c.kv_per_token * p.tokens, {}};
    c.request.padding = c.kv_per_token * (round_up(p.tokens, rule.page_tokens) - p.tokens);

    // slots (slot + temporary / q) = budget, as one division of integers.
    const Bytes budget(static_cast<std::int64_t>(
        std::floor(static_cast<double>(p.memory.value()) * (rule.state_ratio / (1.0 + rule.state_ratio)))));
    const bool share = rule.slots == SlotCount::kShare || slot == Bytes(0);
    c.state_slots = share ? units_that_fit(budget * q, slot * q + temporary) : c.max_running * q;
    const Bytes stored = temporary * std::min(c.max_running, c.state_slots / q);
    c.state_pool = slot == Bytes(0) ? Bytes(0) : slot * c.state_slots + stored;
    if (c.state_pool > p.memory) {  // one slot per running request, whether or not they fit: no server starts
        c.state_slots = 0;
        c.state_pool = Bytes(0);
    }
    c.kv_pool = p.memory - c.state_pool;
    c.kv_tokens = kv_page > 0 ? units_that_fit(c.kv_pool, Bytes(kv_page)) * rule.page_tokens : kUnlimited;

    // SGLang lets at most tokens / 2 requests run. Of two equal limits of memory the slots are named.
    const std::int64_t by_slots = c.state_slots / q;
    const std::int64_t by_kv = std::min(c.kv_tokens / round_up(p.tokens, rule.page_tokens), c.kv_tokens / 2);
    bind(c, std::min(by_slots, by_kv), by_slots <= by_kv ? Limit::kStateSlots : Limit::kKvTokens);
}

// Layers of a model's two kinds as equal groups: `get_kv_cache_groups`. Layers of the MTP module count where
// it serves.
void group_layers(std::int64_t attention, std::int64_t linear, BlockPool& pool) {
    const auto [few, many] = std::minmax(attention, linear);
    // Padding a few layers is better than a second group.
    const bool pad = few == 0 || 2 * many < 3 * few;
    pool.layers_per_group = pad ? many : few;
    pool.attention_groups = ceil_div(attention, pool.layers_per_group);
    pool.state_groups = ceil_div(linear, pool.layers_per_group);
}

std::int64_t attention_layers_served(const ModelSpec& model, const LinearServing& linear) {
    std::int64_t layers = attention_layers(model);
    if (linear.drafts == 0) return layers;
    for (const char letter : model.mtp_pattern) layers += model.kind(letter).attention ? 1 : 0;
    return layers;
}

void solve(const PagedPool& rule, const Problem& p, Capacity& c) {
    BlockPool& pool = c.paged;
    const std::int64_t attention = attention_layers_served(p.model, p.linear);
    const std::int64_t linear = linear_layers(p.model);
    if (attention + linear == 0) return bind(c, kUnlimited, Limit::kBlocks);  // keeps nothing per request
    group_layers(attention, linear, pool);

    const std::int64_t stored = p.stores_states() ? p.linear.drafts : 0;
    const std::int64_t copies = 1 + (rule.aligned_prefix_cache ? 1 : 0);
    pool.states_per_request = copies + stored;
    // Every copy has a window of K - 1 + drafts columns; with a ring it has K - 1.
    const Bytes window = c.conv_per_request + (stored > 0 ? draft_columns(p.model, c, p.linear) : Bytes(0));
    const Bytes copy = c.state_per_request + window + c.buffer_per_request;
    const std::int64_t state_page = linear > 0 ? ceil_div(copy.value(), linear) : 0;
    const std::int64_t token = attention > 0 ? ceil_div(c.kv_per_token.value(), attention) : 0;
    pool.page_tokens = rule.page_tokens;
    if (token > 0)
        pool.page_tokens =
            std::max<std::int64_t>(rule.page_tokens, round_up(ceil_div(state_page, token), rule.page_tokens));
    const std::int64_t page = token > 0 ? pool.page_tokens * token : state_page;
    pool.block = Bytes(page * pool.layers_per_group);
    pool.blocks =
        std::max<std::int64_t>(0, units_that_fit(p.memory, pool.block) - 1);  // block 0 stands for none

    const std::int64_t per_request = pool.state_blocks() + pool.kv_blocks(p.tokens);
    c.kv_pool = p.memory;
    c.slots_per_request = static_cast<int>(pool.states_per_request);
    c.request = {c.state_per_request * copies,  window * copies,
                 c.buffer_per_request * copies, (c.state_per_request + window) * stored,
                 c.kv_per_token * p.tokens,     {}};
    c.request.padding = pool.block * per_request - c.request.total();
    const std::int64_t requests = pool.blocks / per_request;
    const std::int64_t promised = std::max<std::int64_t>(1, requests) * pool.state_blocks();
    c.state_slots =
        promised <= pool.blocks ? std::max<std::int64_t>(1, requests) * pool.states_per_request : 0;
    c.kv_tokens = pool.attention_groups == 0 ? kUnlimited
                                             : std::max<std::int64_t>(0, pool.blocks - promised) /
                                                   pool.attention_groups * pool.page_tokens;
    bind(c, requests, Limit::kBlocks);
}

void solve(const BytePool&, const Problem& p, Capacity& c) {
    // The state after each of T tokens, and one window for all of them.
    const Bytes window = c.conv_per_request + draft_columns(p.model, c, p.linear);
    c.request = {
        c.state_per_request,       window,
        c.buffer_per_request,      p.stores_states() ? c.state_per_request * p.linear.drafts : Bytes(0),
        c.kv_per_token * p.tokens, {}};
    const Bytes fixed = c.request.total() - c.request.kv;
    const std::int64_t requests = units_that_fit(p.memory, c.request.total());
    const std::int64_t promised = std::max<std::int64_t>(1, requests);
    c.kv_pool = p.memory;
    c.state_slots = fixed * promised <= p.memory ? promised : 0;
    c.kv_tokens = units_that_fit(std::max(Bytes(0), p.memory - fixed * promised), c.kv_per_token);
    bind(c, requests, Limit::kBytes);
}

// What weights and activations leave; notes the latter. A pool that is given counts only if it fits beside
// both.
Bytes left_for_pools(const DeviceSpec& device, const EngineSpec& engine, const ModelSpec& rank, Capacity& c) {
    const EngineMemory& memory = engine.memory;
    const std::int64_t tokens = engine.chunked_prefill_tokens;
    const Bytes peak = memory.activations == ActivationRule::kPeak
                           ? activation_bytes(rank, tokens, std::min(tokens, c.max_running))
                           : Bytes(0);
    const Bytes usable(
        static_cast<std::int64_t>(std::floor(static_cast<double>(device.memory.value()) * memory.fraction)));
    c.activations = device.memory - usable + peak;
    if (!memory.pool) return usable - c.weights - peak;
    return c.weights + peak + *memory.pool <= device.memory ? *memory.pool : Bytes(0);
}

}  // namespace

int ring_records(const LinearServing& linear, DraftRecords drafts) {
    const Form form = served_form(linear);
    if (!has_ring(form)) return 0;
    const int ring = ring_capacity(linear);
    if (linear.drafts == 0) return ring;
    const int verified = 1 + linear.drafts;
    return drafts == DraftRecords::kBeside ? std::max(ring, verified) + verified
                                           : std::max(ring, 2 * verified);
}

Capacity solve_capacity(const ModelSpec& rank, const DeviceSpec& device, const EngineSpec& engine,
                        const LinearServing& linear, std::int64_t tokens_per_request, int attention_dp) {
    KVSIM_CHECK(tokens_per_request > 0 && attention_dp > 0, "{} tokens per request, {} groups",
                tokens_per_request, attention_dp);
    const Form form = served_form(linear);
    KVSIM_CHECK(linear.drafts == 0 ||
                    (linear.drafts > 0 && (form == Form::kVerifyStored || form == Form::kVerifyBuffered)),
                "{} drafts in the form {}", linear.drafts, name(form));
    const EngineMemory& memory = engine.memory;
    const bool drafts = linear.drafts > 0;

    Capacity c;
    c.weights = weight_bytes(rank);
    c.kv_per_token = kv_bytes_per_token(rank);
    if (drafts) {
        c.weights += model_weights(rank).mtp.bytes;
        c.kv_per_token += mtp_kv_bytes_per_token(rank);
    }
    c.state_per_request = state_bytes_per_request(rank, linear.state);
    c.conv_per_request = conv_bytes_per_request(rank);
    c.buffer_per_request =
        ring_bytes_per_request(rank, ring_records(linear, memory.draft_records), linear.records);
    c.max_running = engine.max_running_requests;
    if (drafts && memory.max_running_with_drafts)
        c.max_running = std::min<std::int64_t>(c.max_running, *memory.max_running_with_drafts);
    c.max_running /= attention_dp;

    const Bytes rest = left_for_pools(device, engine, rank, c);
    if (rest <= Bytes(0)) {
        c.limit = Limit::kWeights;
        return c;
    }
    const Problem problem{rank, linear, tokens_per_request, rest};
    std::visit([&](const auto& pools) { solve(pools, problem, c); }, memory.pools);
    return c;
}

}  // namespace kvsim
