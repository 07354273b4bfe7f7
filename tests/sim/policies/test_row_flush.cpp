// Which rows with drafts flush in a step, worked out by hand.
#include <algorithm>
#include <vector>

#include "sim/policies/flush.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

using Rows = std::vector<std::size_t>;
constexpr FlushConditions kIdle{0, 0.5};

// Due from 5 records on, full from 9; steps of 4 tokens, a buffer of 8.
Rows picked(const FlushSpec& spec, const std::vector<std::int32_t>& records,
            const FlushConditions& conditions = kIdle) {
    std::vector<std::uint64_t> requests{4, 9, 2, 5, 1};
    requests.resize(records.size());
    Rows rows;
    make_row_flush_policy({8, 16, spec})->pick({records, requests, 5, 9, 4}, conditions, rows);
    std::ranges::sort(rows);
    return rows;
}

TEST_CASE("aligned with drafts: all that have records flush with the first that is due") {
    CHECK(picked({"aligned"}, {3, 0, 4}).empty());
    CHECK(picked({"aligned"}, {3, 0, 5}) == Rows{0, 2});
}

TEST_CASE("deferred with drafts: those with the most records, then those that came first") {
    CHECK(picked({"deferred", 1}, {5, 7, 7, 8, 2}) == Rows{3});
    CHECK(picked({"deferred", 2}, {5, 7, 7, 8, 2}) == Rows{2, 3});
    CHECK(picked({"deferred", 5}, {5, 7, 7, 8, 2}) == Rows{0, 1, 2, 3});
    // 5 rows of 4 tokens in buffers of 8: 2.5 flushes in a step keep up.
    CHECK(picked({"deferred"}, {5, 7, 7, 8, 2}) == Rows{1, 2, 3});
    // No ring may run over.
    CHECK(picked({"deferred", 1}, {9, 7, 10, 9, 2}) == Rows{0, 2, 3});
    CHECK(picked({"deferred", 1}, {4, 0, 3}).empty());
}

TEST_CASE("deferred under load with drafts: whatever is due flushes until requests wait or memory is short") {
    const FlushSpec spec{"deferred_under_load", 1};
    const std::vector<std::int32_t> records{5, 7, 7, 8, 2};
    CHECK(picked(spec, records) == Rows{0, 1, 2, 3});
    CHECK(picked(spec, records, {1, 0.0}) == Rows{3});
    CHECK(picked(spec, records, {0, 0.9}) == Rows{3});
}

TEST_CASE("fixed_length picks no rows, staggered makes no sense, other names are unknown") {
    CHECK(make_row_flush_policy({8, 16, {"fixed_length"}}) == nullptr);
    CHECK_THROWS_WITH(make_row_flush_policy({8, 16, {"staggered"}}),
                      "linear.flush.policy: expected one of fixed_length, aligned, deferred, "
                      "deferred_under_load with speculation, got staggered: a row leaves its phase with the "
                      "drafts that it keeps");
    CHECK_THROWS_WITH(make_row_flush_policy({8, 16, {"late"}}), ContainsSubstring("got late"));
}

}  // namespace
}  // namespace kvsim
