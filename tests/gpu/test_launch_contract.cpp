// Launchers refuse what is outside their contract before they touch the device: runs on machines without one.
#include "kernels/launch.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// Every pointer set, shapes in the contract. The pointers are never followed.
LinearDecodeParams good() {
    alignas(16) static char memory[32];
    LinearDecodeParams p;
    p.shape = {Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
    p.batch = 1;
    p.slots = 1;
    p.qkv = p.a = p.b = p.out = p.ring_k = p.ring_u = reinterpret_cast<__nv_bfloat16*>(memory);
    p.state = p.ring_gate = reinterpret_cast<float*>(memory);
    p.a_log = p.dt_bias = p.state;
    p.slot = p.fill = reinterpret_cast<std::int32_t*>(memory);
    p.flush = reinterpret_cast<std::uint8_t*>(memory);
    p.ring_capacity = 16;
    return p;
}

TEST_CASE("launchers refuse parameters outside the contract") {
    const auto refused = [](auto change) {
        LinearDecodeParams p = good();
        change(p);
        return launch_linear_buffered(p, nullptr) == cudaErrorInvalidValue;
    };
    CHECK(refused([](auto& p) { p.shape.v_heads = 24; }));  // not a multiple of 16 key heads
    CHECK(refused([](auto& p) { p.shape.k_dim = 64; }));
    CHECK(refused([](auto& p) { p.shape.family = Family::kMamba2; }));
    CHECK(refused([](auto& p) { p.shape.state = StateFormat::kBf16; }));
    CHECK(refused([](auto& p) { p.batch = 0; }));
    CHECK(refused([](auto& p) { p.batch = 2; }));  // of one slot
    CHECK(refused([](auto& p) { p.qkv += 1; }));   // two bytes off
    CHECK(refused([](auto& p) { p.ring_u += 4; }));
    CHECK(refused([](auto& p) { p.batch = 65536; }));
    CHECK(refused([](auto& p) { p.ring_capacity = 0; }));
    CHECK(refused([](auto& p) { p.ring_capacity = kMaxRingCapacity + 1; }));
    CHECK(refused([](auto& p) { p.fill = nullptr; }));
    CHECK(refused([](auto& p) { p.state = nullptr; }));
}

TEST_CASE("the recurrent launcher asks for no ring, but for everything else") {
    LinearDecodeParams p = good();
    p.qkv = nullptr;
    CHECK(launch_linear_recurrent(p, nullptr) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace kvsim
