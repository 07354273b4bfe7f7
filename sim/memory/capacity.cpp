#include "sim/memory/capacity.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/check.hpp"
#include "sim/model/parameters.hpp"
#include "sim/model/request_bytes.hpp"

namespace kvsim {

namespace {

// Bytes of the ring that a slot carries; a buffer of one token is the recurrent form and holds nothing.
Bytes ring_bytes(const ModelSpec& model, const LinearServing& linear) {
    const bool buffered = linear.form == Form::kBuffered || linear.form == Form::kVerifyBuffered;
    return buffered && linear.buffer_length > 1 ? ring_bytes_per_request(model, linear.buffer_length)
                                                : Bytes(0);
}

// A model without layers of a kind needs no memory of that kind: then that pool never binds.
std::int64_t units_that_fit(Bytes pool, Bytes unit, std::int64_t unlimited) {
    return unit.value() > 0 ? pool.value() / unit.value() : unlimited;
}

}  // namespace

Capacity solve_capacity(const ModelSpec& model, const DeviceSpec& device, const EngineSpec& engine,
                        const LinearServing& linear, std::int64_t tokens_per_request) {
    KVSIM_CHECK(tokens_per_request > 0, "tokens_per_request is {}", tokens_per_request);
    KVSIM_CHECK(engine.state_slots_per_request > 0, "state_slots_per_request is {}",
                engine.state_slots_per_request);

    Capacity c;
    c.weights = weight_bytes(model);
    c.state_per_request = state_bytes_per_request(model, linear.state);
    c.conv_per_request = conv_bytes_per_request(model);
    c.buffer_per_request = ring_bytes(model, linear);
    c.kv_per_token = kv_bytes_per_token(model);
    c.slots_per_request = engine.state_slots_per_request;

    // SGLang `model_runner.py`: rest = free after weights - total (1 - mem_fraction_static).
    const auto usable = static_cast<std::int64_t>(
        std::floor(static_cast<double>(device.memory.value()) * engine.mem_fraction_static));
    const std::int64_t rest = usable - c.weights.value();
    if (rest <= 0) {
        c.limit = Limit::kWeights;
        return c;
    }
    const double state_share = engine.state_memory_ratio / (1.0 + engine.state_memory_ratio);
    c.state_pool = Bytes(static_cast<std::int64_t>(std::floor(static_cast<double>(rest) * state_share)));
    c.kv_pool = Bytes(rest) - c.state_pool;

    const Bytes slot = c.state_per_request + c.conv_per_request + c.buffer_per_request;
    const std::int64_t running = engine.max_running_requests;
    c.state_slots = units_that_fit(c.state_pool, slot, running * c.slots_per_request);
    c.kv_tokens = units_that_fit(c.kv_pool, c.kv_per_token, running * tokens_per_request);

    // The engine's own limit is named only where memory would hold more; of two equal memory limits the slots
    // are.
    const std::int64_t by_slots = c.state_slots / c.slots_per_request;
    const std::int64_t by_kv = c.kv_tokens / tokens_per_request;
    c.requests = std::min({running, by_slots, by_kv});
    if (c.requests == by_slots && by_slots < running) {
        c.limit = Limit::kStateSlots;
    } else if (c.requests == by_kv && by_kv < running) {
        c.limit = Limit::kKvTokens;
    } else {
        c.limit = Limit::kMaxRunning;
    }
    return c;
}

}  // namespace kvsim
