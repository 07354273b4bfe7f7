#include "sim/model/request_bytes.hpp"

#include "tests/sim/model/support.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using kvsim::testing::committed;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("state, record, convolution and KV bytes of every model", "[model]") {
    struct Case {
        const char* name;
        std::int64_t layers;        // linear
        std::int64_t state_mib;     // S, one layer, fp32
        std::int64_t record;        // b, one layer: bf16 values, fp32 gates
        std::int64_t channels;      // of the convolution
        std::int64_t kv_per_token;  // all layers, bf16
    };
    const Case cases[] = {
        {"qwen3-next-80b-a3b", 36, 2, 12'416, 8192, 12 * 2 * 2 * 256 * 2},
        {"qwen3.5-0.8b", 18, 1, 8'256, 6144, 6 * 2 * 2 * 256 * 2},
        {"qwen3.5-2b", 18, 1, 8'256, 6144, 6 * 2 * 2 * 256 * 2},
        {"qwen3.5-4b", 24, 2, 12'416, 8192, 8 * 2 * 4 * 256 * 2},
        {"qwen3.5-9b", 24, 2, 12'416, 8192, 8 * 2 * 4 * 256 * 2},
        {"qwen3.5-27b", 48, 3, 16'576, 10'240, 16 * 2 * 4 * 256 * 2},
        {"qwen3.5-35b-a3b", 30, 2, 12'416, 8192, 20'480},
        {"qwen3.5-122b-a10b", 36, 4, 20'736, 12'288, 12 * 2 * 2 * 256 * 2},
        {"qwen3.5-397b-a17b", 45, 4, 20'736, 12'288, 15 * 2 * 2 * 256 * 2},
        // Mamba-2: 2 nh hd + 2 g N + 4 nh; channels nh hd + 2 g N.
        {"nemotron-3-nano-30b-a3b", 23, 2, 10'496, 64 * 64 + 2 * 8 * 128, 6 * 2 * 2 * 128 * 2},
        {"nemotron-3-super-120b-a12b", 40, 4, 18'944, 128 * 64 + 2 * 8 * 128, 8 * 2 * 2 * 128 * 2},
        {"nemotron-3-ultra-550b-a55b", 48, 8, 2 * 256 * 64 + 2 * 8 * 128 + 4 * 256, 256 * 64 + 2 * 8 * 128,
         12 * 2 * 2 * 128 * 2},
        {"nemotron-h-8b", 24, 4, 18'944, 128 * 64 + 2 * 8 * 128, 4 * 2 * 8 * 128 * 2},
        {"nemotron-nano-9b-v2", 27, 5, 2 * 128 * 80 + 2 * 8 * 128 + 4 * 128, 128 * 80 + 2 * 8 * 128,
         4 * 2 * 8 * 128 * 2},
        {"granite-4.0-h-small", 36, 4, 2 * 128 * 64 + 2 * 128 + 4 * 128, 128 * 64 + 2 * 128,
         4 * 2 * 8 * 128 * 2},
        {"falcon-h1-7b", 44, 3, 2 * 24 * 128 + 2 * 256 + 4 * 24, 24 * 128 + 2 * 256, 44 * 2 * 2 * 128 * 2},
        // KDA: one fp32 gate per key channel; MLA caches 512 + 64 values for all heads together.
        {"kimi-linear-48b-a3b", 20, 2, 32'768, 3 * 4096, 7 * 576 * 2},
        // Lightning: 2 H (K + V), no gates and no convolution.
        {"minimax-m1", 70, 4, 2 * 64 * (128 + 128), 0, 10 * 2 * 8 * 128 * 2},
    };
    for (const Case& c : cases) {
        INFO(c.name);
        const ModelSpec m = committed(c.name);
        CHECK(state_bytes_per_request(m, StateFormat::kFp32) == Bytes(c.layers * c.state_mib * kMiB));
        CHECK(state_bytes_per_request(m, StateFormat::kBf16) == Bytes(c.layers * c.state_mib * kMiB / 2));
        CHECK(state_bytes_per_request(m, StateFormat::kSplit) == Bytes(c.layers * c.state_mib * kMiB));
        CHECK(ring_bytes_per_request(m, 1) == Bytes(c.layers * c.record));
        CHECK(ring_bytes_per_request(m, 20) == Bytes(20 * c.layers * c.record));
        CHECK(conv_bytes_per_request(m) == Bytes(c.layers * c.channels * 3 * 2));  // kernel of 4: 3 columns
        CHECK(kv_bytes_per_token(m) == Bytes(c.kv_per_token));
    }
}

TEST_CASE("a state of 80 channels, worked out by hand", "[model]") {
    // 21 layers x 96 heads x 80 x 128 x 4 B, which is no whole number of MiB per layer.
    CHECK(state_bytes_per_request(committed("nemotron-3-nano-4b"), StateFormat::kFp32) ==
          Bytes(21LL * 96 * 80 * 128 * 4));
}

TEST_CASE("a model states its own format of the state", "[model]") {
    for (const ModelSpec& m : testing::all_committed()) CHECK(m.state == StateFormat::kFp32);
}

TEST_CASE("the KV cache of an MTP module is that of its layers", "[model]") {
    CHECK(mtp_kv_bytes_per_token(committed("qwen3.5-35b-a3b")) == Bytes(2 * 2 * 256 * 2));
    CHECK(mtp_kv_bytes_per_token(committed("nemotron-3-super-120b-a12b")) == Bytes(2 * 2 * 128 * 2));
    CHECK(mtp_kv_bytes_per_token(committed("nemotron-h-8b")) == Bytes(0));
}

TEST_CASE("a model needs nothing for layers that it does not have", "[model]") {
    ModelSpec m = committed("nemotron-h-8b");
    m.pattern.assign(1, '-');
    CHECK(state_bytes_per_request(m, StateFormat::kFp32) == Bytes(0));
    CHECK(conv_bytes_per_request(m) == Bytes(0));
    CHECK(ring_bytes_per_request(m, 16) == Bytes(0));
    CHECK(kv_bytes_per_token(m) == Bytes(0));
    m.kinds.erase(m.kinds.begin(), m.kinds.begin() + 2);  // and does not describe
    CHECK(linear_mixer(m) == nullptr);
    CHECK(state_bytes_per_request(m, StateFormat::kFp32) == Bytes(0));
    CHECK(conv_bytes_per_request(m) == Bytes(0));
    CHECK(ring_bytes_per_request(m, 16) == Bytes(0));
}
