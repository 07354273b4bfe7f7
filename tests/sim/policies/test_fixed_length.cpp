// The flush policy `fixed_length` against rows that are followed one by one.
#include <vector>

#include "sim/base/check.hpp"
#include "sim/base/random.hpp"
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
        const auto policy = make_fixed_length_flush(m);
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

TEST_CASE("counts per phase equal rows followed one by one") {
    struct Row {
        std::int64_t first;
        int fill;
    };
    RandomStream random(2, "flush test");
    for (int round = 0; round < 100; ++round) {
        const int m = 1 + static_cast<int>(random.bits() % 8);
        const auto policy = make_fixed_length_flush(m);
        std::vector<Row> rows;
        for (std::int64_t step = -20; step < 60; ++step) {
            while (random.bits() % 3 == 0) {
                rows.push_back({step, 0});
                policy->join(step);
            }
            std::int64_t records = 0;
            std::int64_t flushes = 0;
            std::int64_t left = 0;
            for (Row& row : rows) {
                records += row.fill;
                row.fill = row.fill + 1 == m ? 0 : row.fill + 1;
                flushes += row.fill == 0 ? 1 : 0;
                left += row.fill;
            }
            const LinearWork work = step_of(*policy, step);
            CHECK(work.sequences == static_cast<std::int64_t>(rows.size()));
            CHECK(work.buffered_tokens == records);
            CHECK(work.flushes == flushes);
            CHECK(policy->buffered_tokens() == left);
            while (!rows.empty() && random.bits() % 3 == 0) {
                const std::size_t which = random.bits() % rows.size();
                policy->leave(0, rows[which].first, step + 1);
                rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(which));
            }
        }
        for (const Row& row : rows) policy->leave(0, row.first, 60);
        CHECK(policy->buffered_tokens() == 0);
        CHECK(step_of(*policy, 60).sequences == 0);
    }
}

TEST_CASE("a row cannot leave that never joined") {
    const auto policy = make_fixed_length_flush(4);
    policy->join(0);
    CHECK_THROWS_AS(policy->leave(0, 1, 2), InvariantError);
}

}  // namespace
}  // namespace kvsim
