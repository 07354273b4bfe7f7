// Counts of rows against rows that are followed one by one.
#include <algorithm>
#include <map>

#include "sim/base/random.hpp"
#include "sim/serving/cohort_rows.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

struct Row {
    std::int64_t context = 0;
    std::int64_t remaining = 0;
    std::int64_t yielded = 0;
    Time last_token;
};

std::int64_t pages(std::int64_t tokens, std::int64_t page) {
    return (tokens + page - 1) / page;
}

void check_step(CohortRows& cohort, std::map<Slot, Row>& rows, std::int64_t page, Time now) {
    std::int64_t sum = 0, longest = 0, needed = 0;
    for (const auto& [slot, row] : rows) {
        sum += row.context;
        longest = std::max(longest, row.context);
        needed += pages(row.context + 1, page) - pages(row.context, page);
        CHECK(cohort.yielded(slot) == row.yielded);
    }
    CHECK(cohort.rows() == static_cast<std::int64_t>(rows.size()));
    CHECK(cohort.context_sum() == sum);
    CHECK(cohort.pages_needed() == needed);
    if (rows.empty()) return;

    StepShape shape;
    cohort.form_step(shape, {});
    CHECK(shape.decode.sequences == cohort.rows());
    CHECK(shape.decode.context_sum == sum);
    CHECK(shape.decode.context_max == longest);
    std::vector<TokenGap> gaps;
    std::vector<Slot> finished, expected;
    std::map<Time, std::int64_t> expected_gaps, actual_gaps;
    CHECK(cohort.end_step(now, gaps, finished) == static_cast<std::int64_t>(rows.size()));
    CHECK(cohort.pages_grown() == needed);
    for (auto& [slot, row] : rows) {
        ++expected_gaps[now - row.last_token];
        row.last_token = now;
        ++row.context;
        ++row.yielded;
        if (--row.remaining == 0) expected.push_back(slot);
    }
    for (const TokenGap& gap : gaps) actual_gaps[gap.gap] += gap.count;
    CHECK(actual_gaps == expected_gaps);
    CHECK(finished == expected);
    for (const Slot slot : expected) rows.erase(slot);
}

TEST_CASE("cohorts equal rows that are followed, through joins, preemptions and slots used again") {
    RandomStream random(3, "cohorts");
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(high - low + 1));
    };
    for (const std::int64_t page : {1, 2, 3, 16}) {
        CohortRows cohort(make_decode_form({Form::kBuffered, 4, StateFormat::kFp32}), page);
        std::map<Slot, Row> rows;
        Time now(1);
        for (int step = 0; step < 600; ++step) {
            for (std::int64_t joins = pick(0, 3); joins > 0; --joins) {
                Slot slot = 0;
                while (rows.count(slot) > 0) ++slot;
                now += Time(pick(0, 1));  // some get their token when others get theirs
                const Row row{pick(1, 60), pick(1, 40), 0, now};
                rows[slot] = row;
                cohort.join({slot, row.context, row.remaining, row.last_token, 0});
            }
            while (!rows.empty() && pick(0, 3) == 0) {
                const auto victim =
                    std::next(rows.begin(), pick(0, static_cast<std::int64_t>(rows.size()) - 1));
                CHECK(cohort.leave(victim->first) == victim->second.yielded);
                rows.erase(victim);
            }
            now += Time(pick(1, 9));
            check_step(cohort, rows, page, now);
        }
    }
}

TEST_CASE("the longest row is known while it is there, and forgotten when it has left") {
    CohortRows cohort(DecodeForm{}, 1);
    cohort.join({0, 1000, 5, Time(1), 0});
    cohort.join({1, 10, 100, Time(1), 0});
    StepShape shape;
    cohort.form_step(shape, {});
    CHECK(shape.decode.context_max == 1000);
    std::vector<TokenGap> gaps;
    std::vector<Slot> finished;
    cohort.end_step(Time(2), gaps, finished);
    CHECK(cohort.leave(0) == 1);
    shape = {};
    cohort.form_step(shape, {});
    CHECK(shape.decode.context_max == 11);
}

}  // namespace
}  // namespace kvsim
