// Counts of rows against rows that are followed one by one.
#include <algorithm>
#include <map>
#include <utility>

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

struct BufferedRow {
    Row row;
    std::int64_t records = 0;
};

// What a step of these rows reads, flushes and copies, and what they hold after it. Flushes every `length`
// tokens of a row, or of the replica, and where a snapshot is taken; 1: no buffers.
StepShape snapshot_step(std::map<Slot, BufferedRow>& rows, std::int64_t step, std::int64_t length,
                        bool aligned, std::int64_t interval) {
    StepShape shape;
    LinearWork& work = shape[length > 1 ? Form::kBuffered : Form::kRecurrent];
    for (auto& [slot, r] : rows) {
        ++work.sequences;
        const bool snapshot = ++r.row.context % interval == 0;
        shape.state_copies += snapshot ? 1 : 0;
        if (length == 1) continue;
        work.buffered_tokens += r.records++;
        const bool due = aligned ? step % length == length - 1 : r.records == length;
        if (!due && !snapshot) continue;
        ++work.flushes;
        work.flushed_tokens += std::exchange(r.records, 0);
    }
    return shape;
}

struct SnapshotCase {
    const char* policy;
    int length;
    std::int64_t interval;
};

void check_snapshots(const SnapshotCase& c, RandomStream& random) {
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(high - low + 1));
    };
    LinearServing linear{Form::kBuffered, c.length, StateFormat::kFp32};
    linear.flush.policy = c.policy;
    const bool aligned = linear.flush.policy == "aligned";
    const Form form = served_form(linear);
    CohortRows cohort(make_decode_form(linear), 1, c.interval);
    std::map<Slot, BufferedRow> rows;
    std::int64_t copies = 0;
    for (int step = 0; step < 800; ++step) {
        for (std::int64_t joins = pick(0, 2); joins > 0 || rows.empty(); --joins) {
            Slot slot = 0;
            while (rows.count(slot) > 0) ++slot;
            const Row row{pick(1, 60), pick(1, 40), 0, Time(step)};
            rows[slot] = {row, 0};
            cohort.join({slot, row.context, row.remaining, row.last_token, 0});
        }
        if (rows.size() > 1 && pick(0, 3) == 0) {
            cohort.leave(rows.begin()->first);
            rows.erase(rows.begin());
        }
        const StepShape expected = snapshot_step(rows, step, c.length, aligned, c.interval);
        StepShape shape;
        cohort.form_step(shape, {});
        REQUIRE(shape.state_copies == expected.state_copies);
        REQUIRE(shape[form].sequences == expected[form].sequences);
        REQUIRE(shape[form].buffered_tokens == expected[form].buffered_tokens);
        REQUIRE(shape[form].flushes == expected[form].flushes);
        REQUIRE(shape[form].flushed_tokens == expected[form].flushed_tokens);
        copies += shape.state_copies;
        std::vector<TokenGap> gaps;
        std::vector<Slot> finished;
        cohort.end_step(Time(step + 1), gaps, finished);
        for (const Slot slot : finished) rows.erase(slot);
        std::int64_t records = 0;
        for (const auto& [slot, r] : rows) records += r.records;
        REQUIRE(cohort.buffered_tokens() == records);
    }
    CHECK(copies > 800);
}

TEST_CASE("snapshots are taken at every multiple of the interval, and flush the rows that take them") {
    RandomStream random(5, "snapshots");
    for (const SnapshotCase& c : {SnapshotCase{"fixed_length", 4, 6}, SnapshotCase{"fixed_length", 4, 8},
                                  SnapshotCase{"fixed_length", 5, 3}, SnapshotCase{"aligned", 4, 10},
                                  SnapshotCase{"fixed_length", 1, 7}}) {
        INFO(c.policy << " " << c.length << ", snapshots every " << c.interval);
        check_snapshots(c, random);
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
