#include "sim/memory/capacity.hpp"

#include "sim/base/check.hpp"
#include "sim/model/parameters.hpp"
#include "tests/sim/memory/support.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

EngineSpec engine_with(int slots_per_request, int max_running = 1'000'000) {
    EngineSpec e;
    e.memory.fraction = 0.75;
    e.memory.pools = SplitPools{.state_ratio = 0.9, .slots_per_request = slots_per_request};
    e.max_running_requests = max_running;
    return e;
}

LinearServing buffered(int length) {
    return {Form::kBuffered, length, StateFormat::kFp32};
}

}  // namespace

TEST_CASE("SGLang's rule, worked out by hand", "[capacity]") {
    // rest = 0.75 total - weights. Chosen so that rest = 1.9 x 100 slots: state pool 0.9/1.9 of it = 90
    // slots' bytes.
    const ModelSpec model = tiny_model();
    const std::int64_t weights = weight_bytes(model).value();
    const std::int64_t rest = 190 * kTinySlot;
    const std::int64_t total = (weights + rest) * 4 / 3 + 8;  // + 8: rounding must not cost a slot
    const Capacity c = solve_capacity(model, device_with(total), engine_with(3), {}, 100);

    CHECK(c.weights == Bytes(weights));
    CHECK(c.state_per_request == Bytes(4'096));
    CHECK(c.conv_per_request == Bytes(576));
    CHECK(c.buffer_per_request == Bytes(0));
    CHECK(c.kv_per_token == Bytes(kTinyKv));
    CHECK(c.slots_per_request == 3);
    CHECK(c.state_slots == 90);
    CHECK(c.kv_tokens == 100 * kTinySlot / kTinyKv);
    CHECK(c.requests == 30);  // 90 slots / 3; the KV cache would hold 7,300 / 100 = 73
    CHECK(c.limit == Limit::kStateSlots);
    CHECK(c.state_pool + c.kv_pool == Bytes(total * 3 / 4 - weights));
}

TEST_CASE("each limit binds where it must", "[capacity]") {
    const ModelSpec model = tiny_model();
    const std::int64_t weights = weight_bytes(model).value();
    const DeviceSpec device = device_with((weights + 190 * kTinySlot) * 4 / 3 + 8);

    // 7,300 tokens of KV: with 500 per request 14 requests, fewer than the 90 that the slots hold.
    const Capacity kv = solve_capacity(model, device, engine_with(1), {}, 500);
    CHECK(kv.requests == 14);
    CHECK(kv.limit == Limit::kKvTokens);

    const Capacity running = solve_capacity(model, device, engine_with(1, 10), {}, 500);
    CHECK(running.requests == 10);
    CHECK(running.limit == Limit::kMaxRunning);

    // An engine limit equal to what memory holds takes nothing away that memory would give.
    const Capacity equal = solve_capacity(model, device, engine_with(1, 14), {}, 500);
    CHECK(equal.requests == 14);
    CHECK(equal.limit == Limit::kMaxRunning);

    // A request longer than the whole KV cache does not fit at all: a result, not an error.
    const Capacity none = solve_capacity(model, device, engine_with(1), {}, 7'301);
    CHECK(none.requests == 0);
    CHECK(none.limit == Limit::kKvTokens);
    CHECK(solve_capacity(model, device, engine_with(1), {}, 7'300).requests == 1);
}

TEST_CASE("weights that do not fit leave nothing", "[capacity]") {
    // 27B in bf16 is 53.8 GB: more than 0.75 x 64 GiB = 51.5 GB.
    const Capacity c = solve_capacity(qwen35_27b(), device_with(64 * kGiB), engine_with(1), {}, 1024);
    CHECK(c.requests == 0);
    CHECK(c.limit == Limit::kWeights);
    CHECK(c.state_slots == 0);
    CHECK(c.kv_tokens == 0);
    CHECK(c.state_pool == Bytes(0));
    CHECK(c.weights > Bytes(51'539'607'552));

    const Capacity fits = solve_capacity(qwen35_27b(), device_with(141 * kGiB), engine_with(1), {}, 1024);
    CHECK(fits.requests > 0);

    // Exactly nothing left is as bad as too little.
    const std::int64_t weights = weight_bytes(tiny_model()).value();
    const DeviceSpec exact = device_with((weights * 4 + 2) / 3);  // floor(0.75 total) == weights
    CHECK(solve_capacity(tiny_model(), exact, engine_with(1), {}, 1).limit == Limit::kWeights);
}

TEST_CASE("memory for weights but for not one slot names the slots", "[capacity]") {
    const std::int64_t weights = weight_bytes(tiny_model()).value();
    const DeviceSpec device = device_with((weights + kTinySlot) * 4 / 3);
    const Capacity c = solve_capacity(tiny_model(), device, engine_with(1), {}, 1);
    CHECK(c.state_slots == 0);
    CHECK(c.requests == 0);
    CHECK(c.limit == Limit::kStateSlots);
}

TEST_CASE("a buffer of one token is the recurrent form and charges no ring", "[capacity]") {
    const ModelSpec model = qwen35_35b_a3b();
    const DeviceSpec device = device_with(141 * kGiB);
    const Capacity one = solve_capacity(model, device, engine_with(1), buffered(1), 1024);
    const Capacity recurrent = solve_capacity(model, device, engine_with(1), {}, 1024);
    CHECK(one.buffer_per_request == Bytes(0));
    CHECK(one.state_slots == recurrent.state_slots);
    CHECK(solve_capacity(model, device, engine_with(1), buffered(2), 1024).buffer_per_request ==
          Bytes(30LL * 2 * 12'416));
}

TEST_CASE("half-precision states double the slots up to the convolution's share", "[capacity]") {
    const ModelSpec model = qwen35_35b_a3b();
    const DeviceSpec device = device_with(std::int64_t{1} << 46);
    const LinearServing bf16{Form::kRecurrent, 1, StateFormat::kBf16};
    const double ratio =
        static_cast<double>(solve_capacity(model, device, engine_with(1), bf16, 1).state_slots) /
        static_cast<double>(solve_capacity(model, device, engine_with(1), {}, 1).state_slots);
    CHECK(ratio == Approx((2'097'152.0 + 49'152) / (1'048'576 + 49'152)).epsilon(1e-4));
}

TEST_CASE("no tokens per request is a fault of the caller", "[capacity]") {
    CHECK_THROWS_AS(solve_capacity(tiny_model(), device_with(kGiB), engine_with(1), {}, 0), InvariantError);
}
