#include "sim/cost/step_cost.hpp"

#include <random>

#include "kernels/traffic_linear.hpp"
#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/compiled_cost.hpp"
#include "sim/model/parameters.hpp"
#include "tests/sim/cost/step_cost_support.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

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

TEST_CASE("experts whose popularity follows a power law: a batch touches fewer", "[step_cost]") {
    // Two experts at the quantiles 1/4 and 3/4 of a uniform density on [1, 2], one drawn by each token: 1.25
    // and 1.75 of 3. Two tokens touch 2 - p^2 - (1 - p)^2 of them, uniformly routed ones 1.5.
    ModelSpec model = qwen35_35b_a3b();
    const auto set = [&](std::optional<double> power_law) {
        for (LayerKind& kind : model.kinds) {
            auto& moe = std::get<MoeFfn>(*kind.ffn);
            moe.experts = 2;
            moe.top_k = 1;
            moe.power_law = power_law;
        }
    };
    const auto weights = [&](std::int64_t batch) {
        return owned(find(step_cost(model).explain(decode(Form::kRecurrent, batch, 10)), "moe.experts").bytes,
                     Owner::kWeights);
    };
    const double expert = 40 * 2.0 * 3 * 2048 * 512;  // of all layers
    set(std::nullopt);
    CHECK(static_cast<double>(weights(2)) == Approx(1.5 * expert));
    set(0.0);
    const double p = 1.25 / 3;
    CHECK(static_cast<double>(weights(1)) == Approx(expert));
    CHECK(static_cast<double>(weights(2)) == Approx((2 - p * p - (1 - p) * (1 - p)) * expert));
}

TEST_CASE("experts that cost the same for one token and not for two stay apart in the compiled cost",
          "[step_cost]") {
    ModelSpec model = qwen35_35b_a3b();
    std::get<MoeFfn>(*model.kinds[1].ffn).experts = 64;
    const StepCost cost = step_cost(model);
    CompiledStepCost compiled(cost);
    for (const std::int64_t batch : {1, 2, 33}) {
        const StepShape s = decode(Form::kRecurrent, batch, 100);
        CHECK(compiled.price(s).bytes == cost.price(s).bytes);
        CHECK(compiled.price(s).time == cost.price(s).time);
    }
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
                if (op.critical) {
                    time += op.time;
                    by_source[static_cast<std::size_t>(op.source)] += op.time;
                }
                if (op.name == "linear.recurrent" || op.name == "linear.buffered") linear_time += op.time;
                for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += op.bytes[i];
                // No operator beats the data sheet; activations may lie in the L2.
                const std::int64_t dram = total(op.bytes) - owned(op.bytes, Owner::kActivations);
                CHECK(to_seconds(op.time) >= static_cast<double>(dram) / 4.8e12 * (1.0 - 1e-9));
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

TEST_CASE("without tables: launches, then bytes or FLOP at the share of the peaks that large kernels reach",
          "[step_cost]") {
    const std::vector<OperatorCost> small = step_cost(qwen35_4b()).explain(decode(Form::kRecurrent, 1, 10));
    // lm_head, one row: 2 V h of weights and 2 (V + h) of activations at 85 % of 4.8 TB/s, after a launch of
    // 2 us.
    const double bytes = 2.0 * 248'320 * 2560 + 2.0 * (248'320 + 2560);
    CHECK(to_us(find(small, "lm_head").time) == Approx(2.0 + bytes / (0.85 * 4.8e6)).epsilon(1e-6));
    CHECK(find(small, "lm_head").bound == Bound::kMemory);
    CHECK(find(small, "lm_head").source == Source::kRoofline);
    CHECK(find(small, "linear.in_proj_ba").bound == Bound::kLaunch);

    // ffn.up with 8192 tokens: 2 x 8192 x 18,432 x 2560 FLOP per layer at 70 % of 989.4 TFLOP/s.
    const std::vector<OperatorCost> large = step_cost(qwen35_4b()).explain(prefill(1, 8192));
    const double compute_us = 2.0 * 8192 * 18'432 * 2560 / (0.7 * 989.4e6);
    CHECK(to_us(find(large, "ffn.up").time) == Approx(32 * (2.0 + compute_us)).epsilon(1e-6));
    CHECK(find(large, "ffn.up").bound == Bound::kCompute);

    // An element-wise kernel takes 1 us and its bytes; two of them two, and each the engine's launch gap.
    EngineSteps gaps = plain_engine();
    gaps.launch_gap = time_from_us(0.25);
    const std::vector<OperatorCost> moe =
        step_cost(qwen35_35b_a3b(), gaps).explain(decode(Form::kRecurrent, 1, 10));
    const OperatorCost& top_k = find(moe, "moe.top_k");
    CHECK(top_k.launches == 80);
    CHECK(to_us(top_k.time) == Approx(40 * (2 * 1.25 + (2 * 256 + 8 * 8) / (0.85 * 4.8e6))).epsilon(1e-5));
}

TEST_CASE("the host's gap is part of the step, once", "[step_cost]") {
    EngineSteps engine = plain_engine();
    const StepShape shape = decode(Form::kRecurrent, 8, 100);
    const Time without = step_cost(qwen35_4b(), engine).price(shape).time;
    engine.host_gap = time_from_us(100.0);
    CHECK(step_cost(qwen35_4b(), engine).price(shape).time == without + time_from_us(100.0));
    CHECK(find(step_cost(qwen35_4b(), engine).explain(shape), "host_gap").launches == 0);
}

TEST_CASE("a second stream hides the shorter of two chains", "[step_cost]") {
    const StepShape shape = decode(Form::kRecurrent, 8, 100);
    EngineSteps engine = plain_engine();
    const std::vector<OperatorCost> one = step_cost(qwen35_35b_a3b(), engine).explain(shape);
    engine.overlapped[static_cast<std::size_t>(Overlap::kSharedExperts)] = true;
    engine.overlap_tokens = 256;
    const StepCost two = step_cost(qwen35_35b_a3b(), engine);
    const std::vector<OperatorCost> beside = two.explain(shape);
    Time hidden;
    for (const std::string_view name :
         {"moe.clone", "moe.shared_up", "moe.shared_activation", "moe.shared_down"}) {
        CHECK_FALSE(find(beside, name).critical);
        hidden += find(one, name).time;
    }
    CHECK(find(beside, "moe.experts").critical);
    CHECK(two.price(shape).time == step_cost(qwen35_35b_a3b(), plain_engine()).price(shape).time - hidden);
    CHECK(two.price(shape).bytes == step_cost(qwen35_35b_a3b(), plain_engine()).price(shape).bytes);
    // Not beyond the engine's limit, and not in prefill.
    CHECK(find(two.explain(decode(Form::kRecurrent, 257, 100)), "moe.clone").critical);
    CHECK(find(two.explain(prefill(1, 100)), "moe.clone").critical);
}

TEST_CASE("uncertainty: standard deviations add within a family, squares between families", "[step_cost]") {
    const StepShape shape = decode(Form::kRecurrent, 8, 100);
    const StepCost cost = step_cost(qwen35_4b());
    std::array<double, kCostFamilyCount> deviation{};
    for (const OperatorCost& op : cost.explain(shape)) {
        if (op.critical) deviation[static_cast<std::size_t>(op.family)] += to_us(op.time) * op.uncertainty;
    }
    double squares = 0.0;
    for (const double d : deviation) squares += d * d;
    CHECK(to_us(step_uncertainty(cost.explain(shape))) == Approx(std::sqrt(squares)).epsilon(1e-5));
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
    const auto cost_with = [](const ProfileFit& fit) {
        return StepCost(
            {qwen35_4b(), {}, plain_engine(), StateFormat::kFp32, FittedOperators(h200()), {fit, false}});
    };
    ProfileFit fast = synthetic_fit();
    fast.copy.law.gb_per_s = 5000.0;
    CHECK_THROWS_WITH(cost_with(fast), ContainsSubstring("synthetic") && ContainsSubstring("copy bandwidth"));
    ProfileFit kernel = synthetic_fit();
    kernel.read.law.gb_per_s = 90'000.0;
    for (LinearFit& k : kernel.linear) {
        for (LinearRegime& regime : k.regimes) {
            if (auto* law = std::get_if<RecurrentLaw>(&regime.law)) law->write_gb_per_s = 90'000.0;
        }
    }
    CHECK_THROWS_WITH(cost_with(kernel).price(decode(Form::kRecurrent, 256, 10)),
                      ContainsSubstring("synthetic") && ContainsSubstring("linear.recurrent") &&
                          ContainsSubstring("impossible"));
}

TEST_CASE("a kernel that nobody measured runs on the roofline, and says so", "[step_cost]") {
    const StepCost bf16 = step_cost(qwen35_4b(), plain_engine(), {}, StateFormat::kBf16);
    const OperatorCost recurrent = find(bf16.explain(decode(Form::kRecurrent, 64, 10)), "linear.recurrent");
    CHECK(recurrent.source == Source::kRoofline);
    CHECK(to_us(recurrent.time) ==
          Approx(24 * 2.0 + static_cast<double>(total(recurrent.bytes)) / (0.85 * 4.8e6)).epsilon(1e-6));
}

TEST_CASE("kernels measured on another GPU: bandwidths scale, latencies stay, and the source says so",
          "[step_cost]") {
    const StepCost same({qwen35_4b(),
                         {},
                         plain_engine(),
                         StateFormat::kFp32,
                         FittedOperators(h200()),
                         scaled_to(synthetic_fit(), 1.0)});
    const StepCost half({qwen35_4b(),
                         {},
                         plain_engine(),
                         StateFormat::kFp32,
                         FittedOperators(h200()),
                         scaled_to(synthetic_fit(), 0.5)});
    const auto linear = [](const StepCost& cost, std::int64_t batch) {
        const OperatorCost op = find(cost.explain(decode(Form::kRecurrent, batch, 10)), "linear.recurrent");
        CHECK(op.source == Source::kExtrapolated);
        return to_us(op.time);
    };
    CHECK(linear(half, 512) == Approx(2.0 * linear(same, 512)).epsilon(0.03));
    CHECK(linear(half, 1) < 1.5 * linear(same, 1));
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
