// Launchers refuse what is outside their contract before they touch the device: runs on machines without one.
#include <algorithm>
#include <vector>

#include "kernels/launch.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

using Launcher = cudaError_t (*)(const LinearParams&, cudaStream_t);

struct Entry {
    Form form;
    Launcher launch;
};
constexpr Entry kLaunchers[] = {{Form::kRecurrent, launch_linear_recurrent},
                                {Form::kBuffered, launch_linear_buffered},
                                {Form::kVerifyStored, launch_linear_verify_stored},
                                {Form::kVerifyBuffered, launch_linear_verify_buffered}};

// Every pointer set, shapes in the contract. The pointers are never followed.
LinearParams good() {
    alignas(16) static char memory[64];
    const auto bf16 = reinterpret_cast<__nv_bfloat16*>(memory);
    const auto fp32 = reinterpret_cast<float*>(memory);
    const auto ints = reinterpret_cast<std::int32_t*>(memory);
    LinearParams p;
    p.shape = {Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
    p.batch = p.slots = 1;
    p.qkv = p.a = p.b = p.out = p.ring_k = bf16;
    p.state = p.state_low = p.ring_u = p.token_states = memory;
    p.a_log = p.dt_bias = p.ring_gate = fp32;
    p.slot = p.start = p.fill = ints;
    p.flush = reinterpret_cast<std::uint8_t*>(memory);
    p.ring_capacity = 16;
    return p;
}

template <class Change>
void expect_refused(const std::vector<Form>& forms, const Change& change) {
    for (const Entry& entry : kLaunchers) {
        if (std::find(forms.begin(), forms.end(), entry.form) == forms.end()) continue;
        LinearParams p = good();
        change(p);
        INFO(name(entry.form));
        CHECK(entry.launch(p, nullptr) == cudaErrorInvalidValue);
    }
}

const std::vector<Form> kAll{Form::kRecurrent, Form::kBuffered, Form::kVerifyStored, Form::kVerifyBuffered};
const std::vector<Form> kWithRing{Form::kBuffered, Form::kVerifyBuffered};

TEST_CASE("every launcher refuses parameters outside the contract") {
    using P = LinearParams;
    expect_refused(kAll, [](P& p) { p.shape.v_heads = 24; });  // not a multiple of 16 key heads
    expect_refused(kAll, [](P& p) { p.shape.k_dim = 64; });
    expect_refused(kAll, [](P& p) { p.shape.family = Family::kMamba2; });
    expect_refused(kAll, [](P& p) { p.shape.state = StateFormat::kFp16; });
    expect_refused(kAll, [](P& p) { p.batch = 0; });
    expect_refused(kAll, [](P& p) { p.batch = 2; });  // of one slot
    expect_refused(kAll, [](P& p) { p.tokens = 0; });
    expect_refused(kAll, [](P& p) { p.tokens = kMaxTokens + 1; });
    expect_refused(kAll, [](P& p) { p.qkv = nullptr; });
    expect_refused(kAll, [](P& p) { p.qkv += 1; });  // two bytes off
    expect_refused(kAll, [](P& p) { p.state = nullptr; });
    expect_refused(kAll, [](P& p) { p.a_log = nullptr; });
    expect_refused(kAll, [](P& p) { p.slot = nullptr; });
    expect_refused(kAll, [](P& p) { p.out = nullptr; });
}

TEST_CASE("decode launchers refuse more than one token") {
    expect_refused({Form::kRecurrent, Form::kBuffered}, [](LinearParams& p) { p.tokens = 2; });
}

TEST_CASE("the split format needs both planes, and has no layout for states of tokens") {
    using P = LinearParams;
    expect_refused({Form::kRecurrent, Form::kBuffered, Form::kVerifyBuffered}, [](P& p) {
        p.shape.state = StateFormat::kSplit;
        p.state_low = nullptr;
    });
    expect_refused({Form::kVerifyStored}, [](P& p) { p.shape.state = StateFormat::kSplit; });
}

TEST_CASE("forms that buffer refuse rings outside the contract") {
    using P = LinearParams;
    expect_refused(kWithRing, [](P& p) { p.ring_capacity = 0; });
    expect_refused(kWithRing, [](P& p) { p.ring_capacity = kMaxRingCapacity + 1; });
    expect_refused(kWithRing, [](P& p) { p.ring_k = nullptr; });
    expect_refused(kWithRing, [](P& p) { p.ring_u = static_cast<char*>(p.ring_u) + 8; });
    expect_refused(kWithRing, [](P& p) { p.ring_gate = nullptr; });
    expect_refused(kWithRing, [](P& p) { p.start = nullptr; });
    expect_refused(kWithRing, [](P& p) { p.fill = nullptr; });
    expect_refused(kWithRing, [](P& p) { p.flush = nullptr; });
    expect_refused({Form::kVerifyBuffered}, [](P& p) {
        p.tokens = 9;
        p.ring_capacity = 8;
    });
}

TEST_CASE("verification with stored states needs a place for them") {
    expect_refused({Form::kVerifyStored}, [](LinearParams& p) { p.token_states = nullptr; });
}

}  // namespace
}  // namespace kvsim
