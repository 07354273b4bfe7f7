// Verification, drafts and copies of states in a step: launches as counted in SGLang's source, bytes worked
// out from the sizes of the model.
#include "sim/base/error.hpp"
#include "sim/cost/compiled_cost.hpp"
#include "sim/model/parameters.hpp"
#include "tests/sim/cost/step_cost_support.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

// B sequences verify T tokens each.
StepShape verify(Form form, std::int64_t batch, std::int64_t tokens, std::int64_t context, int drafts = 0) {
    StepShape s;
    s[form] = {batch, batch * tokens, 0, 0, 0};
    s.decode = {batch, batch * context, context};
    s.logit_rows = batch * tokens;
    s.drafts = drafts;
    return s;
}

EngineSteps with(Fusion fusion) {
    EngineSteps e = plain_engine();
    e.fused[static_cast<std::size_t>(fusion)] = true;
    return e;
}

std::int64_t draft_launches(const StepCost& cost, int drafts) {
    std::int64_t sum = 0;
    for (const OperatorCost& op : cost.explain(verify(Form::kVerifyStored, 8, drafts + 1, 100, drafts))) {
        if (op.name.starts_with("draft.")) sum += op.launches;
    }
    return sum;
}

// 8 KV layers of Qwen3.5-4B and one of its MTP module: K and V of 4 heads of 256, bf16.
constexpr std::int64_t kKvLayer = 2 * 4 * 256 * 2;

}  // namespace

TEST_CASE("a forward of the MTP module: 20 launches with a dense FFN, 31 with experts",
          "[speculation_cost]") {
    // Embedding, two norms, concatenation, projection; norm and 6 of attention; norm and 3 or 14 of the FFN;
    // final norm, head, copy to fp32, top-1.
    for (const int k : {1, 2, 5}) {
        CHECK(draft_launches(step_cost(qwen35_4b()), k) == 20 * k);
        CHECK(draft_launches(step_cost(qwen35_35b_a3b()), k) == 31 * k);
    }
}

TEST_CASE("k drafts read the head k + 1 times and the module's weights k times", "[speculation_cost]") {
    const ModelSpec model = qwen35_4b();
    const ModelWeights w = model_weights(model);
    const std::int64_t batch = 16;
    for (const int k : {1, 3}) {
        const std::int64_t d = k + 1;
        const StepPrice drafted = step_cost(model).price(verify(Form::kVerifyStored, batch, d, 100, k));
        const StepPrice plain = step_cost(model).price(verify(Form::kVerifyStored, batch, d, 100));
        const std::int64_t rows_of_embedding = batch * d + (k - 1) * batch;
        CHECK(owned(drafted.bytes, Owner::kWeights) - owned(plain.bytes, Owner::kWeights) ==
              k * (w.mtp.bytes.value() + w.embedding.bytes.value()) + rows_of_embedding * 2 * model.hidden);
    }
}

TEST_CASE("rows of logits: of every verified token, or of one per sequence", "[speculation_cost]") {
    const std::int64_t batch = 16, d = 4;
    const auto head_rows = [&](const EngineSteps& engine) {
        std::int64_t flops = 0;
        for (const OperatorCost& op :
             step_cost(qwen35_4b(), engine).explain(verify(Form::kVerifyStored, batch, d, 100, 3))) {
            if (op.name == "lm_head" || op.name == "draft.lm_head") flops += op.flops.value();
        }
        return flops / (2LL * 248'320 * 2560);
    };
    CHECK(head_rows(plain_engine()) == batch * 2 + 2 * batch * d);        // B (k - 1) + 2 B D
    CHECK(head_rows(with(Fusion::kDraftRows)) == batch * 3 + batch * d);  // B k + B D
}

TEST_CASE("the MTP module has a KV layer of its own", "[speculation_cost]") {
    const std::int64_t batch = 4, context = 1000, d = 3, k = 2;
    const StepPrice plain = step_cost(qwen35_4b()).price(verify(Form::kVerifyBuffered, batch, d, context));
    const StepPrice drafted =
        step_cost(qwen35_4b()).price(verify(Form::kVerifyBuffered, batch, d, context, k));
    // The first forward stores the verified tokens and reads all up to them; the second stores and reads one
    // more.
    CHECK(owned(drafted.bytes, Owner::kKvWrite) - owned(plain.bytes, Owner::kKvWrite) ==
          kKvLayer * (batch * d + batch));
    CHECK(owned(drafted.bytes, Owner::kKvRead) - owned(plain.bytes, Owner::kKvRead) ==
          kKvLayer * batch * ((context + d) + (context + d + 1)));
    // Its layers hold no state.
    CHECK(drafted.linear_time == plain.linear_time);
}

TEST_CASE("fresh prompts take part in the later forwards of their step", "[speculation_cost]") {
    const std::int64_t context = 500, k = 3;
    StepShape s = prefill(1, context);
    s.drafts = k;
    const StepPrice alone = step_cost(qwen35_4b()).price(s);
    s.fresh = {1, context, context};
    const StepPrice drafted = step_cost(qwen35_4b()).price(s);
    // Two forwards of one row: each stores a token, and reads all up to it (taken as alike).
    CHECK(owned(drafted.bytes, Owner::kKvWrite) - owned(alone.bytes, Owner::kKvWrite) == kKvLayer * (k - 1));
    CHECK(owned(drafted.bytes, Owner::kKvRead) - owned(alone.bytes, Owner::kKvRead) ==
          kKvLayer * (k - 1) * (context + 1));
    CHECK(drafted.time > alone.time);
}

TEST_CASE("prompts pass through the MTP module where there are drafts", "[speculation_cost]") {
    StepShape s = prefill(1, 500);
    const StepPrice plain = step_cost(qwen35_4b()).price(s);
    s.drafts = 3;  // no row decodes: one forward
    const StepPrice drafted = step_cost(qwen35_4b()).price(s);
    CHECK(owned(drafted.bytes, Owner::kKvWrite) - owned(plain.bytes, Owner::kKvWrite) == kKvLayer * 500);
}

TEST_CASE("verification reads the cache once per sequence, projects every token, accepts in one kernel",
          "[speculation_cost]") {
    const std::int64_t batch = 8, t = 5, context = 2000;
    const auto ops = step_cost(qwen35_4b()).explain(verify(Form::kVerifyStored, batch, t, context));
    CHECK(owned(find(ops, "attention.decode").bytes, Owner::kKvRead) == 8 * kKvLayer * batch * (context + t));
    CHECK(find(ops, "attention.qkv_proj").flops.value() == 8 * 2 * batch * t * (2 * 16 + 2 * 4) * 256 * 2560);
    CHECK(find(ops, "accept").launches == 1);
    CHECK_FALSE(has(step_cost(qwen35_4b()).explain(decode(Form::kRecurrent, batch, context)), "accept"));
    EngineSteps sampled = plain_engine();
    sampled.sampling = Sampling::kSampled;
    const auto drawn =
        step_cost(qwen35_4b(), sampled).explain(verify(Form::kVerifyStored, batch, t, context));
    CHECK(find(drawn, "accept").launches == 2);
    CHECK(total(find(drawn, "accept").bytes) == batch * t * 12 * 248'320);
}

TEST_CASE("stored verification copies the accepted state and window, or takes their index",
          "[speculation_cost]") {
    const std::int64_t batch = 8, t = 4;
    const std::int64_t state = 24LL * 32 * 128 * 128 * 4;  // fp32
    const std::int64_t window = 24LL * (2 * 16 + 32) * 128 * 3 * 2;
    const StepShape s = verify(Form::kVerifyStored, batch, t, 100);
    const StepCost copies = step_cost(qwen35_4b());
    const StepCost indexes = step_cost(qwen35_4b(), with(Fusion::kStateIndex));
    const StepPrice copied = copies.price(s), indexed = indexes.price(s);
    CHECK(owned(copied.bytes, Owner::kStateRead) == batch * 2 * state);
    CHECK(owned(copied.bytes, Owner::kStateWrite) == batch * (t + 1) * state);
    CHECK(owned(copied.bytes, Owner::kConvWrite) == batch * (t + 1) * window);
    CHECK(owned(indexed.bytes, Owner::kStateRead) == batch * state);
    CHECK(owned(indexed.bytes, Owner::kStateWrite) == batch * t * state);
    CHECK(owned(indexed.bytes, Owner::kConvWrite) == batch * window);
    CHECK(launches(copies.explain(s)) == launches(indexes.explain(s)) + 2);
}

TEST_CASE("copies of states: each reads and writes one request's states and windows", "[speculation_cost]") {
    const std::int64_t state = 24LL * 32 * 128 * 128 * 4;
    const std::int64_t window = 24LL * (2 * 16 + 32) * 128 * 3 * 2;
    const StepCost cost = step_cost(qwen35_4b());
    StepShape s = decode(Form::kRecurrent, 8, 100);
    const StepPrice before = cost.price(s);
    const std::int64_t nodes = launches(cost.explain(s));
    s.state_copies = 3;
    const StepPrice after = cost.price(s);
    CHECK(owned(after.bytes, Owner::kStateRead) - owned(before.bytes, Owner::kStateRead) == 3 * state);
    CHECK(owned(after.bytes, Owner::kStateWrite) - owned(before.bytes, Owner::kStateWrite) == 3 * state);
    CHECK(owned(after.bytes, Owner::kConvRead) - owned(before.bytes, Owner::kConvRead) == 3 * window);
    CHECK(owned(after.bytes, Owner::kConvWrite) - owned(before.bytes, Owner::kConvWrite) == 3 * window);
    CHECK(total(after.bytes) - total(before.bytes) == 3 * 2 * (state + window));
    CHECK(launches(cost.explain(s)) == nodes + 2);
    // Two small kernels (1 us each) and the bytes at 0.85 of 4.8 TB/s.
    CHECK(to_us(after.time - before.time) ==
          Approx(2.0 + static_cast<double>(3 * 2 * (state + window)) / (0.85 * 4.8e6)).epsilon(1e-6));
}

TEST_CASE("a flush beside the launches reads state and records and writes the state", "[speculation_cost]") {
    const std::int64_t state = 24LL * 32 * 128 * 128 * 4;
    const std::int64_t record = 24LL * (2 * 32 * 128 + 2 * 16 * 128 + 4 * 32);
    const StepCost cost = step_cost(qwen35_4b());
    StepShape s = decode(Form::kBuffered, 8, 100, 8 * 7);
    const StepPrice before = cost.price(s);
    s.folds = {2, 11};
    const StepPrice after = cost.price(s);
    CHECK(owned(after.bytes, Owner::kStateRead) - owned(before.bytes, Owner::kStateRead) == 2 * state);
    CHECK(owned(after.bytes, Owner::kStateWrite) - owned(before.bytes, Owner::kStateWrite) == 2 * state);
    CHECK(owned(after.bytes, Owner::kBufferRead) - owned(before.bytes, Owner::kBufferRead) == 11 * record);
    CHECK(total(after.bytes) - total(before.bytes) == 2 * 2 * state + 11 * record);
    CHECK(after.flush_time == after.time - before.time);
    // A small kernel (1 us) and the bytes at 0.85 of 4.8 TB/s.
    CHECK(to_us(after.flush_time) ==
          Approx(1.0 + static_cast<double>(2 * 2 * state + 11 * record) / (0.85 * 4.8e6)).epsilon(1e-6));
}

TEST_CASE("flush_time is what flushes add to a step", "[speculation_cost]") {
    const StepCost cost = step_cost(qwen35_35b_a3b());
    const StepPrice without = cost.price(decode(Form::kBuffered, 128, 100, 128 * 7));
    CHECK(without.flush_time == Time());
    Time last;
    for (const std::int64_t flushes : {1, 8, 64, 128}) {
        const StepPrice with_flushes = cost.price(decode(Form::kBuffered, 128, 100, 128 * 7, flushes));
        CHECK(with_flushes.flush_time == with_flushes.time - without.time);
        CHECK(with_flushes.flush_time > last);
        last = with_flushes.flush_time;
    }
    CHECK(cost.price(decode(Form::kRecurrent, 128, 100)).flush_time == Time());
}

TEST_CASE("drafts of a model without an MTP module are refused where it is priced", "[speculation_cost]") {
    const auto cost_of = [](ModelSpec model, int drafts) {
        return StepCost({std::move(model),
                         {},
                         plain_engine(),
                         StateFormat::kFp32,
                         FittedOperators(h200()),
                         {synthetic_fit(), false},
                         drafts});
    };
    CHECK_NOTHROW(cost_of(qwen35_4b(), 4));
    ModelSpec without = qwen35_4b();
    without.mtp_pattern.clear();
    CHECK_NOTHROW(cost_of(without, 0));
    CHECK_THROWS_AS(cost_of(without, 4), ConfigError);
    CHECK_THROWS_WITH(cost_of(without, 4), ContainsSubstring("qwen3.5-4b") && ContainsSubstring("4 drafts"));
    ModelSpec linear = qwen35_4b();
    linear.mtp_pattern = "L";
    CHECK_THROWS_WITH(cost_of(linear, 1), ContainsSubstring("linear attention"));
    // A shape that asks for drafts all the same is a fault of ours.
    const StepCost cost = cost_of(without, 0);
    CHECK_THROWS_AS(cost.price(verify(Form::kVerifyStored, 2, 3, 10, 2)), InvariantError);
    CHECK_THROWS_AS(CompiledStepCost(cost).price(verify(Form::kVerifyStored, 2, 3, 10, 2)), InvariantError);
}
