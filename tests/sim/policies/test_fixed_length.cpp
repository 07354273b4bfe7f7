// The flush policy `fixed_length` against its closed form.
#include "sim/policies/flush.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

LinearWork step_of(FlushPolicy& policy, std::int64_t step) {
    StepShape shape;
    policy.step(step, {}, shape);
    return shape[Form::kBuffered];
}

TEST_CASE("one request flushes at every m-th token since its prefill") {
    for (int m = 1; m <= 8; ++m) {
        const auto policy = make_fixed_length_flush({m, m});
        const std::int64_t first = 5;  // whatever the number of the step at which it joins
        policy->join(first);
        for (std::int64_t token = 1; token <= 5 * m; ++token) {
            const LinearWork work = step_of(*policy, first + token - 1);
            CHECK(work.sequences == 1);
            CHECK(work.new_tokens == 1);
            CHECK(work.buffered_tokens == (token - 1) % m);
            CHECK(work.flushes == (token % m == 0 ? 1 : 0));
            CHECK(work.flushed_tokens == (token % m == 0 ? m : 0));
            CHECK(policy->buffered_tokens() == token % m);
        }
    }
}

}  // namespace
}  // namespace kvsim
