// Expert parallelism whose tokens are sent to the ranks of their experts and back.
#include <cmath>

#include "kernels/traffic_exchange.hpp"
#include "sim/cost/compiled_cost.hpp"
#include "tests/sim/cost/step_cost_support.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

constexpr Parallelism kSent{.tp = 8, .ep = 8, .attention_dp = 8, .experts = ExpertExchange::kAllToAll};
constexpr Parallelism kSummed{.tp = 8, .ep = 8, .attention_dp = 8};

}  // namespace

TEST_CASE("each rank sends its own tokens and gets as many back", "[expert_exchange]") {
    const ModelSpec m = qwen35_35b_a3b();
    const std::vector<OperatorCost> ops =
        step_cost(m, plain_engine(), kSent).explain(decode(Form::kRecurrent, 16, 1000));
    // 40 layers; a bf16 row of 2048 read and written once per rank that holds experts of the token.
    const double ranks = expected_expert_ranks({1, 256, 8, 8});
    for (const char* name : {"moe.dispatch", "moe.combine"}) {
        INFO(name);
        const OperatorCost& op = find(ops, name);
        CHECK(op.count == 40);
        CHECK(op.source == Source::kRoofline);
        CHECK(static_cast<double>(total(op.bytes)) == Approx(40 * 2 * 16 * ranks * 4096).epsilon(1e-5));
        // Over one NVLink direction: all but an eighth of the rows, after 4 us of latency.
        const double us = 4.0 + 16 * ranks * 4096 * 7 / 8 / (450e9 * 0.85) * 1e6;
        CHECK(to_us(op.time) == Approx(40 * us).epsilon(1e-4));
    }
    for (const char* name : {"ffn.gather", "ffn.scatter", "ffn.all_reduce", "mixer.scatter"})
        CHECK_FALSE(has(ops, name));
}

TEST_CASE("experts do the same work however their tokens arrive", "[expert_exchange]") {
    const ModelSpec m = qwen35_35b_a3b();
    const StepShape s = decode(Form::kRecurrent, 16, 1000);
    const std::vector<OperatorCost> sent = step_cost(m, plain_engine(), kSent).explain(s);
    const std::vector<OperatorCost> summed = step_cost(m, plain_engine(), kSummed).explain(s);
    CHECK(find(sent, "moe.experts").bytes == find(summed, "moe.experts").bytes);
    CHECK(find(sent, "moe.experts").time == find(summed, "moe.experts").time);
    // The router sees the rank's 16 tokens, not all 128.
    CHECK(find(sent, "moe.router").flops.value() * 8 == find(summed, "moe.router").flops.value());
    // A shared expert of full width for an eighth of the tokens.
    CHECK(find(sent, "moe.shared_up").flops == find(summed, "moe.shared_up").flops);
}

TEST_CASE("mixers over several ranks scatter their sums and gather the outputs", "[expert_exchange]") {
    const ModelSpec m = qwen35_35b_a3b();
    const Parallelism p{.tp = 4, .ep = 4, .attention_dp = 2, .experts = ExpertExchange::kAllToAll};
    const StepCost cost = step_cost(m, plain_engine(), p);
    const std::vector<OperatorCost> ops = cost.explain(decode(Form::kRecurrent, 16, 1000));
    CHECK(find(ops, "mixer.scatter").count == 40);
    CHECK(find(ops, "ffn.gather").count == 40);
    // 16 tokens of the group on two ranks: eight each.
    const double ranks = expected_expert_ranks({1, 256, 8, 4});
    CHECK(static_cast<double>(total(find(ops, "moe.dispatch").bytes)) ==
          Approx(40 * 2 * 8 * ranks * 4096).epsilon(1e-5));
    CompiledStepCost compiled(cost);
    for (const std::int64_t batch : {1, 2, 15, 16, 17, 300}) {
        const StepShape s = decode(Form::kRecurrent, batch, 1000);
        CHECK(compiled.price(s).time == cost.price(s).time);
        CHECK(compiled.price(s).bytes == cost.price(s).bytes);
    }
}

TEST_CASE("fp8 experts get fp8 tokens with a scale per 128 values", "[expert_exchange]") {
    ModelSpec m = qwen35_35b_a3b();
    m.formats[static_cast<std::size_t>(WeightGroup::kExperts)] = {WeightType::kFp8, 128, 128, 4};
    const std::vector<OperatorCost> ops =
        step_cost(m, plain_engine(), kSent).explain(decode(Form::kRecurrent, 16, 1000));
    const auto bytes = [&](const char* name) { return static_cast<double>(total(find(ops, name).bytes)); };
    CHECK(bytes("moe.dispatch") / bytes("moe.combine") == Approx((2048 + 4 * 16) / 4096.0).epsilon(1e-5));
}
