// Prices that are kept: a launch that takes another's place in the table is priced anew.
#include "sim/cost/compiled_cost.hpp"
#include "tests/sim/cost/step_cost_support.hpp"

using namespace kvsim;
using namespace kvsim::testing;

TEST_CASE("more launches than places are told apart", "[linear_prices]") {
    const StepCost cost = step_cost(qwen35_35b_a3b());
    CompiledStepCost compiled(cost);
    StepShape s = decode(Form::kBuffered, 2048, 100);
    LinearWork& work = s[Form::kBuffered];
    int wrong = 0;
    for (int round = 0; round < 2; ++round) {
        for (work.buffered_tokens = 0; work.buffered_tokens <= 1 << 14; ++work.buffered_tokens) {
            const Time one = synthetic_fit().linear_time({gdn(32), Form::kBuffered, work}).time;
            wrong += compiled.price(s).linear_time == one * 30 ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}
