// vLLM's rule: blocks of one size for states and KV. And the idealised one beside it.
#include "sim/memory/activations.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/model/parameters.hpp"
#include "sim/model/rank.hpp"
#include "tests/sim/memory/support.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

EngineSpec paged(Bytes pool) {
    EngineSpec e;
    e.memory.pool = pool;
    e.memory.draft_records = DraftRecords::kBeside;
    e.memory.pools = PagedPool{.page_tokens = 16};
    e.max_running_requests = 1 << 20;
    return e;
}
EngineSpec ideal(Bytes pool) {
    EngineSpec e = paged(pool);
    e.memory.draft_records = DraftRecords::kWithin;
    e.memory.pools = BytePool{};
    return e;
}

// Nemotron-3-Super's caches: 40 Mamba-2 layers of 128 heads x 64 x 128 and 8 groups, 8 attention layers of 2
// KV heads of 128, and one in the MTP module. Its experts keep nothing per request.
ModelSpec super_caches() {
    ModelSpec m;
    m.name = "super";
    m.hidden = 4096;
    m.vocab = 131072;
    m.kinds = {{'M', LinearMixer{"mamba", Family::kMamba2, 8, 128, 128, 64, 4, true}, {}, {}},
               {'*', {}, GqaMixer{"attention", 32, 2, 128}, {}}};
    for (int i = 0; i < 8; ++i) m.pattern += "MMMMM*";
    m.mtp_pattern.assign(1, '*');
    return m;
}

const DeviceSpec kB300 = device_with(275'040LL << 20);
constexpr std::int64_t kMambaState = 128LL * 64 * 128 * 4;                 // 4 MiB
constexpr std::int64_t kMambaColumn = (128LL * 64 + 2 * 8 * 128) * 2;      // bf16
constexpr std::int64_t kMambaRecord = 2LL * 8192 + 2 * 8 * 128 + 4 * 128;  // 18,944

}  // namespace

TEST_CASE("requests of Nemotron-3-Super under vLLM: 213 natively and 694 with a ring, as published",
          "[capacity]") {
    // Published for a B300, T = 4, length 2048, buffer 16; the pool is not, so it is the one that 213
    // implies. By the block rule: a state page of 4 MiB and 6 columns of 20,480 B is 4,317,184 B, 4,224
    // tokens of 1,024 B hold it; a request has 5 groups of 4 states and a block of 2,048 tokens: 21 blocks,
    // in 9 layers each (8 and the MTP module's).
    const std::int64_t native_page = 4'224LL * 1'024;
    const Bytes pool((213LL * 21 + 1) * native_page * 9);  // and the block that stands for none: 174.2 GB
    CHECK(pool.value() == Approx(174.17e9).epsilon(1e-4));

    const ModelSpec model = super_caches();
    const LinearServing stored{Form::kVerifyStored, 1, StateFormat::kFp32, 3};
    const LinearServing ring{Form::kVerifyBuffered, 16, StateFormat::kFp32, 3};
    const Capacity native = solve_capacity(model, kB300, paged(pool), stored, 2048);
    CHECK(native.requests == 213);
    CHECK(native.limit == Limit::kBlocks);
    CHECK(native.paged.page_tokens == 4'224);
    CHECK(native.paged.layers_per_group == 9);
    CHECK(native.paged.block == Bytes(native_page * 9));
    CHECK(native.paged.state_blocks() == 5 * 4);
    CHECK(native.paged.kv_blocks(2048) == 1);

    // A ring of 16 + 4 records and 3 columns: 4,194,304 + 61,440 + 378,880 B, 4,528 tokens; 5 states and 1
    // block.
    const Capacity buffered = solve_capacity(model, kB300, paged(pool), ring, 2048);
    CHECK(buffered.paged.page_tokens == 4'528);
    CHECK(buffered.paged.state_blocks() + buffered.paged.kv_blocks(2048) == 6);
    CHECK(buffered.buffer_per_request == Bytes(40 * 20 * kMambaRecord));
    const double ratio = static_cast<double>(buffered.requests) / static_cast<double>(native.requests);
    CHECK(ratio == Approx(694.0 / 213).epsilon(0.03));
    CHECK(buffered.requests == Approx(694).epsilon(0.005));
}

TEST_CASE("bytes of a request in blocks, by owner", "[capacity]") {
    const LinearServing stored{Form::kVerifyStored, 1, StateFormat::kFp32, 3};
    const Capacity c = solve_capacity(super_caches(), kB300, paged(Bytes(200'000'000'000)), stored, 2048);
    CHECK(c.request.state == Bytes(40 * kMambaState));
    CHECK(c.request.conv == Bytes(40 * 6 * kMambaColumn));
    CHECK(c.request.temporary == Bytes(40 * 3 * (kMambaState + 6 * kMambaColumn)));
    CHECK(c.request.kv == Bytes(2048LL * 9 * 1'024));
    CHECK(c.request.total() == Bytes(21LL * 9 * 4'224 * 1'024));  // padding is the rest
}

TEST_CASE("an aligned prefix cache keeps one more state per request", "[capacity]") {
    EngineSpec engine = paged(Bytes(200'000'000'000));
    std::get<PagedPool>(engine.memory.pools).aligned_prefix_cache = true;
    const auto states = [&](const LinearServing& linear) {
        return solve_capacity(super_caches(), kB300, engine, linear, 2048).paged.states_per_request;
    };
    CHECK(states({Form::kVerifyStored, 1, StateFormat::kFp32, 3}) == 2 + 3);
    CHECK(states({}) == 2);
    CHECK(states({Form::kVerifyBuffered, 16, StateFormat::kFp32, 3}) == 2);
}

TEST_CASE("groups hold equally many layers", "[capacity]") {
    // 30 linear and 10 attention layers: 3 groups and 1. With the MTP module's layer 11 each: 30 are 3
    // groups, padded.
    const ModelSpec qwen = qwen35_35b_a3b();
    const EngineSpec engine = paged(Bytes(50'000'000'000));
    const BlockPool plain = solve_capacity(qwen, kB300, engine, {}, 1024).paged;
    CHECK(plain.layers_per_group == 10);
    CHECK(plain.state_groups == 3);
    CHECK(plain.attention_groups == 1);
    const BlockPool drafts =
        solve_capacity(qwen, kB300, engine, {Form::kVerifyStored, 1, StateFormat::kFp32, 1}, 1024).paged;
    CHECK(drafts.layers_per_group == 11);
    CHECK(drafts.state_groups == 3);

    // Nearly as many of one kind as of the other: a group of the more numerous, 5 and 4 of 5.
    ModelSpec even = tiny_model();
    even.pattern = "LFLFLFLFL";
    const BlockPool padded = solve_capacity(even, kB300, engine, {}, 10).paged;
    CHECK(padded.layers_per_group == 5);
    CHECK(padded.attention_groups == 1);
    CHECK(padded.state_groups == 1);

    // Attention alone keeps the engine's own block of 16 tokens.
    ModelSpec attention = tiny_model();
    attention.pattern = "FF";
    const Capacity c = solve_capacity(attention, kB300, paged(Bytes(101 * 16 * kTinyKv * 2)), {}, 33);
    CHECK(c.paged.page_tokens == 16);
    CHECK(c.paged.blocks == 100);
    CHECK(c.requests == 100 / 3);

    // Nothing at all: only the engine's own limit binds.
    ModelSpec ffn = tiny_model();
    ffn.kinds = {{'E', {}, {}, DenseFfn{"ffn", 64}}};
    ffn.pattern = "EE";
    CHECK(solve_capacity(ffn, kB300, paged(Bytes(1)), {}, 33).limit == Limit::kMaxRunning);
    CHECK(solve_capacity(ffn, kB300, ideal(Bytes(1)), {}, 33).limit == Limit::kMaxRunning);

    // States alone: a page is a state, a request a block.
    ModelSpec linear = tiny_model();
    linear.pattern = "LL";
    CHECK(solve_capacity(linear, kB300, paged(Bytes(101 * kTinySlot * 2)), {}, 33).requests == 100);
}

TEST_CASE("slots and tokens promised from a shared pool never exceed it", "[capacity]") {
    for (const std::int64_t tokens : {1, 100, 3'000, 20'000, 200'000}) {
        for (const std::int64_t gigabytes : {1, 20, 60}) {
            INFO(tokens << " tokens, " << gigabytes << " GB");
            const Capacity c =
                solve_capacity(qwen35_35b_a3b(), kB300, paged(Bytes(gigabytes * 1'000'000'000)), {}, tokens);
            const BlockPool& pool = c.paged;
            CHECK(c.state_slots * pool.state_groups + pool.kv_blocks(c.kv_tokens) <= pool.blocks);
            CHECK((c.requests > 0) == (pool.state_blocks() + pool.kv_blocks(tokens) <= pool.blocks));
            if (c.requests > 0) {
                CHECK(c.state_slots >= c.requests);
                CHECK(c.kv_tokens >= c.requests * tokens);
            } else {
                CHECK(c.kv_tokens < tokens);  // such a request is refused for ever
                CHECK(c.limit == Limit::kBlocks);
            }
        }
    }
}

TEST_CASE("a pool that is given must fit beside the weights", "[capacity]") {
    const ModelSpec model = tiny_model();
    const std::int64_t weights = weight_bytes(model).value();
    const auto limit = [&](std::int64_t memory) {
        return solve_capacity(model, device_with(memory), ideal(Bytes(kGiB)), {}, 10).limit;
    };
    CHECK(limit(weights + kGiB) == Limit::kBytes);
    CHECK(limit(weights + kGiB - 1) == Limit::kWeights);
}

TEST_CASE("an idealised engine rounds nothing", "[capacity]") {
    // 3 drafts: 4 states, one window of 3 + 3 columns, KV of 2,048 tokens in 9 layers.
    const std::int64_t request = 40 * (4 * kMambaState + 6 * kMambaColumn) + 2048LL * 9 * 1'024;
    const LinearServing stored{Form::kVerifyStored, 1, StateFormat::kFp32, 3};
    const Capacity exact = solve_capacity(super_caches(), kB300, ideal(Bytes(100 * request)), stored, 2048);
    CHECK(exact.request.total() == Bytes(request));
    CHECK(exact.request.padding == Bytes(0));
    CHECK(exact.requests == 100);
    CHECK(exact.limit == Limit::kBytes);
    CHECK(solve_capacity(super_caches(), kB300, ideal(Bytes(100 * request - 1)), stored, 2048).requests ==
          99);

    const LinearServing ring{Form::kVerifyBuffered, 16, StateFormat::kFp32, 3};
    CHECK(solve_capacity(super_caches(), kB300, ideal(Bytes(100 * request)), ring, 2048).request.total() ==
          Bytes(40 * (kMambaState + 6 * kMambaColumn + 16 * kMambaRecord) + 2048LL * 9 * 1'024));
}

TEST_CASE("no engine's rule holds more than the idealised one", "[capacity]") {
    for (const Form form : {Form::kVerifyStored, Form::kVerifyBuffered}) {
        const LinearServing linear{form, form == Form::kVerifyStored ? 1 : 16, StateFormat::kFp32, 3};
        for (const std::int64_t tokens : {100, 5'000, 50'000}) {
            const Bytes pool(80'000'000'000);
            const ModelSpec model = qwen35_35b_a3b();
            CHECK(solve_capacity(model, kB300, paged(pool), linear, tokens).requests <=
                  solve_capacity(model, kB300, ideal(pool), linear, tokens).requests);
        }
    }
}

TEST_CASE("a rank holds its share", "[capacity]") {
    const ModelSpec rank = rank_model(super_caches(), {.tp = 2});
    const Capacity c = solve_capacity(rank, kB300, ideal(Bytes(80'000'000'000)), {}, 2048);
    CHECK(c.state_per_request == Bytes(20 * kMambaState));
    CHECK(c.conv_per_request == Bytes(20 * 3 * kMambaColumn));
    CHECK(c.kv_per_token == Bytes(8LL * 512));
}

TEST_CASE("activations are those of the widest sublayer, or of the logits", "[capacity]") {
    // Tiny model: the FFN has 2 x 64 + 64 = 192 values alive, attention 2 x 16 + 2 x 16 + 16 = 80, the linear
    // layer (64 + 64) + (64 + 32) = 224; beside them 2 x 32.
    CHECK(activation_bytes(tiny_model(), 1'000, 1) == Bytes(2LL * 1'000 * (64 + 224)));
    CHECK(activation_bytes(tiny_model(), 1, 1'000) == Bytes(6LL * 1'000 * 64));

    EngineSpec engine = ideal({});
    engine.memory.pool.reset();
    engine.memory.activations = ActivationRule::kPeak;
    engine.chunked_prefill_tokens = 1'000;
    engine.max_running_requests = 4;
    const Capacity c = solve_capacity(tiny_model(), device_with(kGiB), engine, {}, 10);
    CHECK(c.activations == Bytes(2LL * 1'000 * (64 + 224)));
    CHECK(c.weights + c.activations + c.kv_pool == Bytes(kGiB));
}
