#include "sim/cost/step_cost.hpp"

#include <random>

#include "kernels/traffic_linear.hpp"
#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/model/parameters.hpp"
#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/models.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

// NVIDIA H200 SXM, data sheet.
DeviceSpec h200() {
    DeviceSpec d;
    d.name = "h200";
    d.peak_bandwidth = Bandwidth(4.8e12);
    d.peak_bf16 = FlopRate(989.4e12);
    d.peak_fp32 = FlopRate(66.9e12);
    return d;
}

const ProfileFit& synthetic_fit() {
    static const ProfileFit fit = fit_profile(synthetic_profile());
    return fit;
}

StepCost step_cost(const ModelSpec& m) {
    return {m, h200(), synthetic_fit(), StateFormat::kFp32};
}

StepShape decode(Form form, std::int64_t batch, std::int64_t context, std::int64_t records = 0,
                 std::int64_t flushes = 0) {
    StepShape s;
    // Rows that flush hold the mean number of records, and fold their new token too.
    s[form] = {batch, batch, records, flushes, flushes * (records / batch + 1)};
    s.decode = {batch, batch * context, context};
    s.logit_rows = batch;
    return s;
}

StepShape prefill(std::int64_t sequences, std::int64_t tokens_each, std::int64_t cached_each = 0) {
    StepShape s;
    s.prefill = {sequences, sequences * tokens_each, sequences * cached_each,
                 sequences * (tokens_each * cached_each + tokens_each * (tokens_each + 1) / 2)};
    s.logit_rows = sequences;
    return s;
}

std::int64_t owned(const ByteLedger& bytes, Owner owner) {
    return bytes[static_cast<std::size_t>(owner)].value();
}

std::int64_t total(const ByteLedger& bytes) {
    std::int64_t sum = 0;
    for (const Bytes b : bytes) sum += b.value();
    return sum;
}

const OperatorCost& find(const std::vector<OperatorCost>& list, std::string_view name) {
    for (const OperatorCost& op : list) {
        if (op.name == name) return op;
    }
    FAIL("no operator " << name);
    return list.front();
}

bool has(const std::vector<OperatorCost>& list, std::string_view name) {
    for (const OperatorCost& op : list) {
        if (op.name == name) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("launches of a decode step as counted in SGLang's source", "[step_cost]") {
    // 380, 756 and 914 nodes inside the graph; the argmax after it is one more.
    for (const auto& [model, published] :
         {std::pair{qwen35_4b(), 380}, {qwen35_27b(), 756}, {qwen35_35b_a3b(), 914}}) {
        INFO(model.name);
        std::int64_t launches = 0;
        for (const OperatorCost& op : step_cost(model).explain(decode(Form::kRecurrent, 8, 100)))
            launches += op.launches;
        CHECK(launches == published + 1);
    }
}

TEST_CASE("a dense decode step reads every weight of body and head once", "[step_cost]") {
    for (const ModelSpec& model : {qwen35_4b(), qwen35_27b()}) {
        INFO(model.name);
        const ModelWeights p = model_weights(model);
        for (const std::int64_t batch : {1, 7, 512}) {
            const StepPrice price = step_cost(model).price(decode(Form::kRecurrent, batch, 10));
            // An embedding look-up reads one row per token; a tied head is the embedding matrix.
            CHECK(owned(price.bytes, Owner::kWeights) ==
                  2 * (p.body.parameters + p.embedding.parameters + batch * model.hidden));
        }
    }
}

TEST_CASE("a step of a mixture of experts reads the experts that its tokens touch", "[step_cost]") {
    const ModelSpec model = qwen35_35b_a3b();
    const ModelWeights p = model_weights(model);
    const StepPrice one = step_cost(model).price(decode(Form::kRecurrent, 1, 10));
    CHECK(owned(one.bytes, Owner::kWeights) == 2 * (p.body.active + p.head.active + model.hidden));
    // Two tokens touch 256 (1 - (248/256)^2) = 15.75 experts.
    const StepPrice two = step_cost(model).price(decode(Form::kRecurrent, 2, 10));
    const std::int64_t expert = 2LL * 3 * 2048 * 512;
    CHECK(owned(two.bytes, Owner::kWeights) - owned(one.bytes, Owner::kWeights) ==
          40 * 31 * expert / 4 + 2 * model.hidden);  // 15.75 - 8 = 31/4
}

TEST_CASE("state, buffer and KV bytes of a step belong to their owners", "[step_cost]") {
    const ModelSpec model = qwen35_35b_a3b();
    constexpr std::int64_t kState = 2'097'152, kRecord = 12'416, kWindow = 49'152, kLinear = 30;

    const StepPrice recurrent = step_cost(model).price(decode(Form::kRecurrent, 64, 1000));
    CHECK(owned(recurrent.bytes, Owner::kStateRead) == kLinear * 64 * kState);
    CHECK(owned(recurrent.bytes, Owner::kStateWrite) == kLinear * 64 * kState);
    CHECK(owned(recurrent.bytes, Owner::kConvRead) == kLinear * 64 * kWindow);
    CHECK(owned(recurrent.bytes, Owner::kConvWrite) == kLinear * 64 * kWindow);
    CHECK(owned(recurrent.bytes, Owner::kBufferRead) == 0);
    CHECK(owned(recurrent.bytes, Owner::kBufferWrite) == 0);
    CHECK(owned(recurrent.bytes, Owner::kKvRead) == 20'480 * 64 * 1001);  // the token just stored is read too
    CHECK(owned(recurrent.bytes, Owner::kKvWrite) == 20'480 * 64);

    const StepPrice buffered = step_cost(model).price(decode(Form::kBuffered, 64, 1000, 64 * 7, 4));
    CHECK(owned(buffered.bytes, Owner::kStateRead) == kLinear * 64 * kState);
    CHECK(owned(buffered.bytes, Owner::kStateWrite) == kLinear * 4 * kState);
    CHECK(owned(buffered.bytes, Owner::kBufferRead) == kLinear * 64 * 7 * kRecord);
    CHECK(owned(buffered.bytes, Owner::kBufferWrite) == kLinear * 64 * kRecord);
}

TEST_CASE("activations of a decode step, summed by hand", "[step_cost]") {
    // 4B: h 2560, C 8192, HV V = 4096, HV = 32, nq d = 4096, nkv d = 1024, I = 9216, V = 248,320; one token.
    const std::int64_t h = 2560, c = 8192, hv = 4096, q = 4096, kv = 1024, i = 9216, v = 248'320;
    const std::int64_t linear = 8 * h + 2 * (h + 12'288) + 2 * (h + 64) + (4 * c + 4 * hv + 8 * 32) + 4 * c +
                                (16'512 + 8'192) + (6 * hv + 4 * 32) + 2 * (hv + h);
    const std::int64_t full =
        8 * h + 2 * (h + 2 * q + 2 * kv) + 4 * (2 * q + kv) + 4 * kv + 4 * q + 6 * q + 2 * (q + h);
    const std::int64_t ffn = 8 * h + 2 * (h + 2 * i) + 6 * i + 2 * (i + h);
    const std::int64_t ends = 2 * h + 8 * h + 2 * (h + v) + 6 * v + 4 * v;
    const StepPrice price = step_cost(qwen35_4b()).price(decode(Form::kRecurrent, 1, 100));
    CHECK(owned(price.bytes, Owner::kActivations) == 24 * linear + 8 * full + 32 * ffn + ends);
}

TEST_CASE("explain and price agree to the byte and picosecond on random shapes", "[step_cost]") {
    std::mt19937 random(20240611);  // raw draws only: distributions differ between libraries
    const auto draw = [&](std::uint32_t limit) { return static_cast<std::int64_t>(random() % limit); };
    for (const ModelSpec& model : {qwen35_4b(), qwen35_27b(), qwen35_35b_a3b()}) {
        const StepCost cost = step_cost(model);
        for (int n = 0; n < 50; ++n) {
            StepShape s;
            const std::int64_t recurrent = draw(50), buffered = 1 + draw(200), chunks = draw(3);
            s[Form::kRecurrent] = {recurrent, recurrent, 0, 0};
            const std::int64_t flushes = draw(static_cast<std::uint32_t>(buffered));
            s[Form::kBuffered] = {buffered, buffered, buffered * draw(15), flushes, flushes * (1 + draw(15))};
            s.decode = {recurrent + buffered, (recurrent + buffered) * draw(9000), 9000};
            s.prefill = {chunks, chunks * (1 + draw(3000)), chunks * draw(5000), chunks * draw(1'000'000)};
            s.logit_rows = draw(300);
            const StepPrice price = cost.price(s);

            Time time, linear_time;
            ByteLedger bytes{};
            std::array<Time, kSourceCount> by_source{};
            for (const OperatorCost& op : cost.explain(s)) {
                time += op.time;
                by_source[static_cast<std::size_t>(op.source)] += op.time;
                if (op.name == "linear.recurrent" || op.name == "linear.buffered") linear_time += op.time;
                for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += op.bytes[i];
                // No operator beats the data sheet.
                CHECK(to_seconds(op.time) >= static_cast<double>(total(op.bytes)) / 4.8e12);
                CHECK(to_seconds(op.time) >= static_cast<double>(op.flops.value()) / 989.4e12 * (1.0 - 1e-9));
            }
            CHECK(time == price.time);
            CHECK(bytes == price.bytes);
            CHECK(by_source == price.time_by_source);
            CHECK(linear_time == price.linear_time);
            Time sources;
            for (const Time t : price.time_by_source) sources += t;
            CHECK(sources == price.time);
        }
    }
}

TEST_CASE("no step is faster than reading its active weights", "[step_cost]") {
    // An 80B hybrid was once predicted in half that time. 35B-A3B at batch 1: 5.9 GB at 4.8 TB/s are 1.23 ms.
    const ModelSpec model = qwen35_35b_a3b();
    const ModelWeights p = model_weights(model);
    const double least_s = 2.0 * static_cast<double>(p.body.active + p.head.active) / 4.8e12;
    const StepPrice price = step_cost(model).price(decode(Form::kRecurrent, 1, 1));
    CHECK(to_seconds(price.time) > least_s);
    CHECK(to_seconds(price.time) < 5.0 * least_s);
}

TEST_CASE("a roofline operator: launches + max(bytes / copy bandwidth, FLOP / peak)", "[step_cost]") {
    const ProfileFit& fit = synthetic_fit();
    const std::vector<OperatorCost> small = step_cost(qwen35_4b()).explain(decode(Form::kRecurrent, 1, 10));
    // lm_head, one row: 2 V h of weights and 2 (V + h) of activations; FLOP do not matter.
    const double bytes = 2.0 * 248'320 * 2560 + 2.0 * (248'320 + 2560);
    CHECK(to_us(find(small, "lm_head").time) == Approx(kNodeUs + fit.copy.law.time_us(bytes)).epsilon(1e-6));
    CHECK(find(small, "lm_head").bound == Bound::kMemory);
    CHECK(find(small, "lm_head").source == Source::kRoofline);
    CHECK(find(small, "linear.in_proj_ba").bound == Bound::kLaunch);

    // ffn.gate_up with 8192 tokens: 2 x 8192 x 18,432 x 2560 FLOP per layer at 989.4 TFLOP/s.
    const std::vector<OperatorCost> large = step_cost(qwen35_4b()).explain(prefill(1, 8192));
    const double compute_us = 2.0 * 8192 * 18'432 * 2560 / 989.4e6;
    CHECK(to_us(find(large, "ffn.gate_up").time) == Approx(32 * (kNodeUs + compute_us)).epsilon(1e-6));
    CHECK(find(large, "ffn.gate_up").bound == Bound::kCompute);

    // Two launches cost two nodes.
    const std::vector<OperatorCost> moe =
        step_cost(qwen35_35b_a3b()).explain(decode(Form::kRecurrent, 1, 10));
    const OperatorCost& top_k = find(moe, "moe.top_k");
    CHECK(top_k.launches == 80);
    CHECK(to_us(top_k.time) ==
          Approx(40 * (2 * kNodeUs + fit.copy.law.time_us(2 * 256 + 8 * 8))).epsilon(1e-6));
}

TEST_CASE("decode of linear attention takes the time of its fit", "[step_cost]") {
    const ProfileFit& fit = synthetic_fit();
    const LinearWork work{128, 128, 128 * 7, 8, 8 * 8};
    StepShape s = decode(Form::kBuffered, 128, 100, 128 * 7, 8);
    const StepPrice price = step_cost(qwen35_35b_a3b()).price(s);
    const TimedSource one = fit.linear_time({gdn(32), Form::kBuffered, work});
    CHECK(price.linear_time == one.time * 30);
    CHECK(price.time_by_source[static_cast<std::size_t>(Source::kFitted)] == one.time * 30);
    // Beyond the measured batch the same kernel is extrapolated, and said to be.
    const StepPrice beyond = step_cost(qwen35_35b_a3b()).price(decode(Form::kBuffered, 600, 100));
    CHECK(beyond.time_by_source[static_cast<std::size_t>(Source::kExtrapolated)] == beyond.linear_time);
    CHECK(beyond.time_by_source[static_cast<std::size_t>(Source::kFitted)] == Time(0));
}

TEST_CASE("prefill FLOP: 2 x parameters + scan + attention", "[step_cost]") {
    const ModelSpec model = qwen35_4b();
    const ModelWeights p = model_weights(model);
    const std::int64_t n = 1000, cached = 500;
    std::int64_t flops = 0;
    for (const OperatorCost& op : step_cost(model).explain(prefill(1, n, cached))) flops += op.flops.value();
    // Vectors (norms, A_log, dt_bias) multiply nothing here; the convolution's 4 C count as 2 FLOP each as
    // weights do.
    const std::int64_t vectors = (2 * 32 + 1) * 2560 + 24 * (2 * 32 + 128) + 8 * 2 * 256;
    const std::int64_t projections = 2 * (p.body.parameters - vectors) * n;
    const std::int64_t scan = 24 * 32 * 180'224LL * n;
    const std::int64_t pairs = n * cached + n * (n + 1) / 2;
    const std::int64_t attention = 8 * 4LL * 16 * 256 * pairs;
    CHECK(flops == projections + scan + attention + 2 * 248'320LL * 2560);
}

TEST_CASE("operators appear only where there is work for them", "[step_cost]") {
    const StepCost cost = step_cost(qwen35_4b());
    const auto dec = cost.explain(decode(Form::kRecurrent, 4, 10));
    CHECK_FALSE(has(dec, "linear.chunk_prefill"));
    CHECK_FALSE(has(dec, "attention.prefill"));
    CHECK_FALSE(has(dec, "linear.buffered"));
    StepShape no_logits = prefill(1, 100);  // a chunk that is not the last of its prompt
    no_logits.logit_rows = 0;
    const auto pre = cost.explain(no_logits);
    CHECK_FALSE(has(pre, "lm_head"));
    CHECK_FALSE(has(pre, "attention.decode"));
    CHECK_FALSE(has(pre, "linear.conv"));
    CHECK(has(pre, "linear.chunk_prefill"));
    CHECK_THROWS_AS(cost.price(StepShape{}), InvariantError);
}

TEST_CASE("a profile that claims the impossible is refused by name", "[step_cost]") {
    ProfileFit fast = synthetic_fit();
    fast.copy.law.gb_per_s = 5000.0;
    CHECK_THROWS_WITH(StepCost(qwen35_4b(), h200(), fast, StateFormat::kFp32),
                      ContainsSubstring("synthetic") && ContainsSubstring("copy bandwidth"));
    ProfileFit kernel = synthetic_fit();
    kernel.read.law.gb_per_s = 9000.0;
    const StepCost cost(qwen35_4b(), h200(), kernel, StateFormat::kFp32);
    CHECK_THROWS_WITH(cost.price(decode(Form::kRecurrent, 256, 10)),
                      ContainsSubstring("synthetic") && ContainsSubstring("linear_recurrent") &&
                          ContainsSubstring("impossible"));
}

TEST_CASE("verification is priced from its own kernels, and buys what it buffers", "[step_cost]") {
    const ModelSpec model = qwen35_35b_a3b();
    const ProfileFit fit = fit_profile(synthetic_profile_of_all());
    const StepCost cost(model, h200(), fit, StateFormat::kFp32);
    // 64 rows of five tokens; with a ring of 4 records each.
    const LinearWork stored{64, 320, 0, 0}, ring{64, 320, 64 * 4, 0};
    StepShape shape;
    shape.decode = {64, 64'000, 1000};
    shape.logit_rows = 320;
    StepShape buffered = shape;
    shape[Form::kVerifyStored] = stored;
    buffered[Form::kVerifyBuffered] = ring;
    const StepPrice a = cost.price(shape), b = cost.price(buffered);
    const LinearShape layer = gdn(32);
    CHECK(a.linear_time == fit.linear_time({layer, Form::kVerifyStored, stored}).time * 30);
    CHECK(b.linear_time == fit.linear_time({layer, Form::kVerifyBuffered, ring}).time * 30);
    CHECK(owned(a.bytes, Owner::kStateWrite) == 30LL * 320 * 2'097'152);
    CHECK(owned(b.bytes, Owner::kStateWrite) == 0);
    CHECK(owned(b.bytes, Owner::kBufferWrite) == 30LL * 320 * 12'416);
    CHECK(b.time < a.time);
}

TEST_CASE("forms and formats that were not measured are refused", "[step_cost]") {
    CHECK_THROWS_WITH(step_cost(qwen35_4b()).price(decode(Form::kVerifyStored, 4, 10)),
                      ContainsSubstring("verify_stored"));
    const StepCost bf16(qwen35_4b(), h200(), synthetic_fit(), StateFormat::kBf16);
    CHECK_THROWS_WITH(bf16.price(decode(Form::kRecurrent, 4, 10)), ContainsSubstring("bf16"));
}

TEST_CASE("buffered decode moves fewer bytes and takes less time than recurrent at a large batch",
          "[step_cost]") {
    const StepCost cost = step_cost(qwen35_35b_a3b());
    const StepPrice recurrent = cost.price(decode(Form::kRecurrent, 256, 1024));
    const StepPrice buffered = cost.price(decode(Form::kBuffered, 256, 1024, 256 * 15 / 2, 16));
    CHECK(total(buffered.bytes) < total(recurrent.bytes));
    CHECK(buffered.time < recurrent.time);
    // State and buffer bytes alone, closed form at m = 16: (2 S) against S (1 + 1/16) + 8.5 b.
    const double ratio = 2.0 * 2'097'152 / (2'097'152 * 17.0 / 16.0 + 8.5 * 12'416);
    const auto state_bytes_of = [](const StepPrice& p) {
        return static_cast<double>(owned(p.bytes, Owner::kStateRead) + owned(p.bytes, Owner::kStateWrite) +
                                   owned(p.bytes, Owner::kBufferRead) + owned(p.bytes, Owner::kBufferWrite));
    };
    CHECK(state_bytes_of(recurrent) / state_bytes_of(buffered) == Approx(ratio).epsilon(1e-9));
}
