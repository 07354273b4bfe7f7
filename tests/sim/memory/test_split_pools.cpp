// SGLang's rule with speculation: what states stored for verification cost, and what dropping them gives.
#include "sim/memory/capacity.hpp"
#include "sim/model/parameters.hpp"
#include "sim/model/request_bytes.hpp"
#include "tests/sim/memory/support.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

// Large enough that rounding to slots is below 1e-4.
const DeviceSpec kLarge = device_with(std::int64_t{1} << 46);

EngineSpec sglang(int slots_per_request, int max_running = 1 << 20) {
    EngineSpec e;
    e.memory.fraction = 0.75;
    e.memory.pools = SplitPools{.state_ratio = 0.9, .slots_per_request = slots_per_request};
    e.max_running_requests = max_running;
    return e;
}

LinearServing stored(int drafts) {
    return {Form::kVerifyStored, 1, StateFormat::kFp32, drafts};
}
LinearServing verify_buffered(int length, int drafts) {
    return {Form::kVerifyBuffered, length, StateFormat::kFp32, drafts};
}

}  // namespace

TEST_CASE("dropping temporary states multiplies requests by (q + D) / q, exactly before rounding",
          "[capacity]") {
    // Published for D = T = 4 (3 drafts), no ring charged: 5.0, 2.33, 2.0, 1.8 at q = 1, 3, 4, 5.
    const ModelSpec model = qwen35_35b_a3b();
    for (const auto& [q, published] : {std::pair{1, 5.0}, {3, 2.33}, {4, 2.0}, {5, 1.8}}) {
        INFO("q = " << q);
        const RequestBytes with = solve_capacity(model, kLarge, sglang(q), stored(3), 1024).request;
        const RequestBytes without = solve_capacity(model, kLarge, sglang(q), {}, 1024).request;
        const Bytes slots = with.state + with.conv + with.temporary;
        const Bytes dropped = without.state + without.conv;
        CHECK(slots * q == dropped * (q + 4));  // the ratio as one of integers
        CHECK(slots / dropped == Approx(published).margin(0.005));
    }
}

TEST_CASE("a ring takes its share of what dropping temporary states gives", "[capacity]") {
    // Published for a ring of 16 bf16 entries per slot, GDN 16/32, D = T = 4: 4.58, 2.14, 1.65 at q = 1,
    // 3, 5. In bytes of one layer (q + 4) x (2,097,152 + 49,152) / (q (2,097,152 + 49,152 + 16 x 12,416)).
    const ModelSpec model = qwen35_35b_a3b();
    for (const auto& [q, published] : {std::pair{1, 4.58}, {3, 2.14}, {5, 1.65}}) {
        INFO("q = " << q);
        const Capacity with = solve_capacity(model, kLarge, sglang(q), stored(3), 1024);
        const Capacity ring = solve_capacity(model, kLarge, sglang(q), verify_buffered(16, 3), 1024);
        CHECK(ring.request.ring == Bytes(30LL * q * 16 * 12'416));
        CHECK(ring.request.temporary == Bytes(0));
        const double ratio = static_cast<double>(ring.state_slots) / static_cast<double>(with.state_slots);
        CHECK(ratio == Approx((q + 4.0) / q * 2'146'304 / (2'146'304 + 16 * 12'416)).epsilon(1e-4));
        CHECK(ratio == Approx(published).margin(0.006));
    }
}

TEST_CASE("a ring holds what a step keeps and the tokens under verification", "[capacity]") {
    // A buffer of 4 and T = 8: up to 8 records are kept, and 8 more come in the next step.
    const auto ring = [](DraftRecords drafts) {
        EngineSpec engine = sglang(1);
        engine.memory.draft_records = drafts;
        return solve_capacity(tiny_model(), kLarge, engine, verify_buffered(4, 7), 10).buffer_per_request;
    };
    CHECK(ring(DraftRecords::kWithin) == Bytes(16 * 132));
    CHECK(ring(DraftRecords::kBeside) == Bytes(16 * 132));
}

TEST_CASE("a record of fp32 u takes more of a ring", "[capacity]") {
    // u of 32 x 128 values: 4 bytes instead of 2 each, 12,416 + 8,192.
    LinearServing linear = verify_buffered(16, 3);
    linear.records = RecordFormat::kFp32U;
    const Capacity c = solve_capacity(qwen35_35b_a3b(), kLarge, sglang(1), linear, 1024);
    CHECK(c.buffer_per_request == Bytes(30LL * 16 * 20'608));
}

TEST_CASE("SGLang's joint solve for slots and temporary states, by hand", "[capacity]") {
    // rest = 190 slots' bytes; the states' share, 90 of them, holds slots x (1 + 2 / 3) copies with T = 2 and
    // q = 3: 54 slots, 18 requests, 18 x 2 temporary copies. KV has the other 100.
    const ModelSpec model = tiny_model();
    const std::int64_t rest = 190 * kTinySlot;
    const std::int64_t total = (weight_bytes(model).value() + rest) * 4 / 3 + 8;
    const Capacity c = solve_capacity(model, device_with(total), sglang(3), stored(1), 100);
    CHECK(c.state_slots == 54);
    CHECK(c.requests == 18);
    CHECK(c.limit == Limit::kStateSlots);
    CHECK(c.state_pool == Bytes(90 * kTinySlot));
    CHECK(c.kv_tokens == 100 * kTinySlot / kTinyKv);
    CHECK(c.request.state == Bytes(3 * 4'096));
    CHECK(c.request.conv == Bytes(3 * 576));
    CHECK(c.request.temporary == Bytes(2 * kTinySlot));
    CHECK(c.request.kv == Bytes(100 * kTinyKv));
    CHECK(c.request.total() == Bytes(5 * kTinySlot + 100 * kTinyKv));

    // Only running requests have temporary states: what 8 of 18 leave goes to the KV cache.
    const Capacity few = solve_capacity(model, device_with(total), sglang(3, 10), stored(1), 100);
    CHECK(few.requests == 10);
    CHECK(few.limit == Limit::kMaxRunning);
    CHECK(few.memory_requests == 18);
    CHECK(few.kv_tokens == (100 + 8 * 2) * kTinySlot / kTinyKv);
}

TEST_CASE("speculation has a default limit of its own", "[capacity]") {
    EngineSpec engine = sglang(1, 4096);
    engine.memory.max_running_with_drafts = 48;
    const ModelSpec model = qwen35_35b_a3b();
    const DeviceSpec h200 = device_with(143'771LL << 20);
    const Capacity drafts = solve_capacity(model, h200, engine, stored(3), 1024);
    CHECK(drafts.requests == 48);
    CHECK(drafts.limit == Limit::kMaxRunning);
    CHECK(drafts.memory_requests > 48);
    CHECK(solve_capacity(model, h200, engine, {}, 1024).requests > 48);
    // A lower limit that the user asks for holds.
    engine.max_running_requests = 20;
    CHECK(solve_capacity(model, h200, engine, stored(3), 1024).requests == 20);
}

TEST_CASE("one slot per running request takes what it needs, or no server starts", "[capacity]") {
    const ModelSpec model = tiny_model();
    const std::int64_t total = (weight_bytes(model).value() + 190 * kTinySlot) * 4 / 3 + 8;
    EngineSpec engine = sglang(1, 150);
    std::get<SplitPools>(engine.memory.pools).slots = SlotCount::kRunning;
    const Capacity c = solve_capacity(model, device_with(total), engine, {}, 10);
    CHECK(c.state_slots == 150);  // the share of 0.9 / 1.9 would be 90
    CHECK(c.kv_tokens == 40 * kTinySlot / kTinyKv);
    CHECK(c.requests == 150);

    engine.max_running_requests = 191;
    const Capacity none = solve_capacity(model, device_with(total), engine, {}, 10);
    CHECK(none.requests == 0);
    CHECK(none.limit == Limit::kStateSlots);
}

TEST_CASE("requests are rounded up to pages of the KV cache", "[capacity]") {
    const ModelSpec model = tiny_model();
    const std::int64_t total = (weight_bytes(model).value() + 190 * kTinySlot) * 4 / 3 + 8;
    EngineSpec engine = sglang(1);
    std::get<SplitPools>(engine.memory.pools).page_tokens = 64;
    const Capacity c = solve_capacity(model, device_with(total), engine, {}, 500);
    CHECK(c.kv_tokens == 7'300 / 64 * 64);
    CHECK(c.request.padding == Bytes((512 - 500) * kTinyKv));
    CHECK(c.requests == 7'296 / 512);
    CHECK(c.limit == Limit::kKvTokens);
}

TEST_CASE("drafts bring the weights and the KV cache of the MTP module", "[capacity]") {
    const ModelSpec model = qwen35_35b_a3b();
    const Capacity without = solve_capacity(model, kLarge, sglang(1), {}, 1024);
    const Capacity with = solve_capacity(model, kLarge, sglang(1), stored(3), 1024);
    CHECK(with.weights - without.weights == model_weights(model).mtp.bytes);
    CHECK(without.kv_per_token == Bytes(10LL * 2 * 2 * 256 * 2));
    CHECK(with.kv_per_token == Bytes(11LL * 2 * 2 * 256 * 2));  // one layer more
}

TEST_CASE("groups of attention-data-parallel ranks share the engine's limit", "[capacity]") {
    const Capacity c = solve_capacity(qwen35_35b_a3b(), kLarge, sglang(1, 100), {}, 1024, 4);
    CHECK(c.max_running == 25);
    CHECK(c.requests == 25);
}
