// Every flush policy against rows that are followed one by one, and in the steady states that have a closed
// form.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/policies/form.hpp"
#include "tests/sim/policies/followed_rows.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

FlushParts parts(std::string_view policy, int length, int ring, int most = 0) {
    return {length, ring, {.policy = std::string(policy), .most_per_step = most}};
}

LinearWork step_of(FlushPolicy& policy, std::int64_t step, const FlushConditions& conditions = {}) {
    StepShape shape;
    policy.step(step, conditions, shape);
    return shape[Form::kBuffered];
}

bool same(const LinearWork& a, const LinearWork& b) {
    return a.sequences == b.sequences && a.new_tokens == b.new_tokens &&
           a.buffered_tokens == b.buffered_tokens && a.flushes == b.flushes &&
           a.flushed_tokens == b.flushed_tokens;
}

// A policy and the rows that it should describe, over random joins, leaves, folds and lengths.
class Walk {
  public:
    Walk(std::string_view policy, RandomStream& random)
        : random_(random),
          ring_(pick(1, 10)),
          parts_(parts(policy, pick(1, ring_), ring_, pick(0, 4))),
          policy_(make_flush_policy(parts_)),
          followed_(policy, parts_),
          events_(pick(0, 2)) {}

    void run() {
        const std::int64_t begin = pick(-30, 30);
        const std::int64_t end = begin + 80;
        for (std::int64_t step = begin; step < end; ++step) {
            while (pick(0, 2) == 0) join(step);
            if (events_ == 2 && pick(0, 5) == 0) {
                const int length = pick(1, ring_);
                policy_->set_length(length, step);
                followed_.set_length(length);
            }
            if (events_ > 0 && pick(0, 7) == 0) {
                policy_->fold(step);
                followed_.fold(step);
                CHECK(policy_->buffered_tokens() == 0);
            } else {
                compare(step);
            }
            while (followed_.rows() > 0 && pick(0, 2) == 0)
                leave(followed_.number(pick(0, followed_.rows() - 1)), step + 1);
        }
        while (followed_.rows() > 0) leave(followed_.number(0), end);
        CHECK(policy_->buffered_tokens() == 0);
        CHECK(step_of(*policy_, end).sequences == 0);
    }
    std::int64_t flushes() const { return flushes_; }

  private:
    struct Member {
        std::int64_t ticket;
        std::int64_t first;
    };

    int pick(int low, int high) {
        return low + static_cast<int>(random_.bits() % static_cast<std::uint64_t>(high - low + 1));
    }
    void join(std::int64_t step) {
        members_[number_] = {policy_->join(step), step};
        followed_.join(number_++);
    }
    void leave(int number, std::int64_t next) {
        policy_->leave(members_.at(number).ticket, members_.at(number).first, next);
        followed_.leave(number);
        CHECK(policy_->buffered_tokens() == followed_.buffered_tokens());
    }
    void compare(std::int64_t step) {
        const FlushConditions conditions{pick(0, 1), pick(0, 1) == 0 ? 0.5 : 0.95};
        const std::int64_t before = policy_->buffered_tokens();
        const LinearWork work = step_of(*policy_, step, conditions);
        CHECK(same(work, followed_.step(step, conditions)));
        CHECK(policy_->buffered_tokens() == followed_.buffered_tokens());
        // Records are conserved: one more per row, less those that are folded.
        CHECK(policy_->buffered_tokens() == before + work.new_tokens - work.flushed_tokens);
        CHECK(followed_.most_records() < ring_);
        flushes_ += work.flushes;
    }

    RandomStream& random_;
    int ring_;
    FlushParts parts_;
    std::unique_ptr<FlushPolicy> policy_;
    FollowedRows followed_;
    int events_;  // 0: neither folds nor lengths, 1: folds, 2: both
    std::map<int, Member> members_;
    int number_ = 0;
    std::int64_t flushes_ = 0;
};

TEST_CASE("every flush policy equals rows followed one by one") {
    for (const FlushPolicyEntry& entry : flush_policies()) {
        RandomStream random(7, "flush policies");
        std::int64_t flushes = 0;
        for (int round = 0; round < 300; ++round) {
            INFO(entry.name << ", round " << round);
            Walk walk(entry.name, random);
            walk.run();
            flushes += walk.flushes();
        }
        CHECK(flushes > 3000);
    }
}

TEST_CASE("a row cannot leave that never joined") {
    for (const FlushPolicyEntry& entry : flush_policies()) {
        INFO(entry.name);
        const auto policy = make_flush_policy(parts(entry.name, 4, 8));
        CHECK_THROWS_AS(policy->leave(0, 1, 2), InvariantError);
    }
}

TEST_CASE("aligned: one step in m has all the flushes") {
    constexpr int kLength = 8;
    constexpr std::int64_t kBatch = 37;
    const LinearServing linear{Form::kBuffered,      kLength, StateFormat::kFp32, 0, RecordFormat::kBf16,
                               {.policy = "aligned"}};
    const DecodeForm form = make_decode_form(linear);
    fill_buffers(*form.flush, linear, kBatch);
    for (std::int64_t step = 0; step < 3 * kLength; ++step) {
        const LinearWork work = step_of(*form.flush, step);
        const bool last = step % kLength == kLength - 1;
        CHECK(work.buffered_tokens == kBatch * (step % kLength));
        CHECK(work.flushes == (last ? kBatch : 0));
        CHECK(work.flushed_tokens == (last ? kBatch * kLength : 0));
    }
}

TEST_CASE("aligned: a row that joins within the cycle flushes early with what it has") {
    const auto policy = make_flush_policy(parts("aligned", 4, 4));
    policy->join(0);
    for (const std::int64_t step : {0, 1}) CHECK(step_of(*policy, step).flushes == 0);
    policy->join(2);
    CHECK(step_of(*policy, 2).flushes == 0);
    const LinearWork work = step_of(*policy, 3);
    CHECK(work.flushes == 2);
    CHECK(work.flushed_tokens == 4 + 2);
}

TEST_CASE("staggered: flushes of a step differ from the mean by less than one") {
    for (const int m : {1, 2, 7, 16}) {
        for (const std::int64_t batch : {1, 5, 16, 100}) {
            const auto policy = make_flush_policy(parts("staggered", m, m));
            for (std::int64_t i = 0; i < batch; ++i) policy->join(0);  // all from one prefill
            std::int64_t flushes = 0;
            for (std::int64_t step = 0; step < 4 * m; ++step) {
                const LinearWork work = step_of(*policy, step);
                CHECK(std::abs(work.flushes * m - batch) < m);
                flushes += work.flushes;
                // The first flush of a row comes early, the others fold m records.
                if (step >= m) CHECK(work.flushed_tokens == m * work.flushes);
                if (step < m) CHECK(work.flushed_tokens == (step + 1) * work.flushes);
            }
            CHECK(flushes == 4 * batch);
        }
    }
}

// n rows of one prefill fall due together at step m - 1; c of them flush per step, until at step C - 1 the
// rings of the rest are full.
TEST_CASE("deferred: a burst is spread over the spare room of the rings, and no further") {
    constexpr int kLength = 4;
    for (const int ring : {4, 6, 9}) {
        for (const int most : {1, 3, 10}) {
            constexpr std::int64_t kRows = 20;
            const auto policy = make_flush_policy(parts("deferred", kLength, ring, most));
            for (std::int64_t i = 0; i < kRows; ++i) policy->join(0);
            std::int64_t left = kRows;
            for (std::int64_t step = 0; step < ring; ++step) {
                const LinearWork work = step_of(*policy, step);
                std::int64_t expected = step < kLength - 1 ? 0 : std::min<std::int64_t>(most, left);
                // From step 2 m - 1 on those that flushed first are due again, behind the others.
                if (step == ring - 1) expected = left;
                if (step < 2 * kLength - 1 || left >= most) CHECK(work.flushes == expected);
                CHECK((work.flushes <= most || step == ring - 1));
                left = std::max<std::int64_t>(0, left - work.flushes);
            }
            CHECK(left == 0);
        }
    }
}

TEST_CASE("deferred: without a bound of the user's, as many as keep up") {
    // 10 rows, m = 4: ceil(10 / 4) = 3 per step. In four steps all flush.
    const auto policy = make_flush_policy(parts("deferred", 4, 8));
    for (int i = 0; i < 10; ++i) policy->join(0);
    std::vector<std::int64_t> flushes;
    for (std::int64_t step = 0; step < 7; ++step) flushes.push_back(step_of(*policy, step).flushes);
    CHECK(flushes == std::vector<std::int64_t>{0, 0, 0, 3, 3, 3, 1});
}

TEST_CASE("deferred under load: what is due flushes at once unless requests wait or memory is short") {
    const std::vector<std::pair<FlushConditions, std::int64_t>> cases{
        {{0, 0.0}, 6}, {{0, 0.89}, 6}, {{1, 0.0}, 2}, {{0, 0.9}, 2}};
    for (const auto& [conditions, flushes] : cases) {
        const auto policy = make_flush_policy(parts("deferred_under_load", 3, 8, 2));
        for (int i = 0; i < 6; ++i) policy->join(0);
        for (const std::int64_t step : {0, 1}) CHECK(step_of(*policy, step, conditions).flushes == 0);
        CHECK(step_of(*policy, 2, conditions).flushes == flushes);
    }
}

TEST_CASE("a change of length holds for a row from its next flush") {
    const auto policy = make_flush_policy(parts("fixed_length", 2, 4));
    policy->join(0);
    policy->set_length(4, 1);  // the row flushes in step 1 as it was to, then after four tokens
    std::vector<std::int64_t> folded;
    for (std::int64_t step = 0; step < 10; ++step) folded.push_back(step_of(*policy, step).flushed_tokens);
    CHECK(folded == std::vector<std::int64_t>{0, 2, 0, 0, 0, 4, 0, 0, 0, 4});
}

TEST_CASE("after a fold all buffers are empty, and phases go on") {
    const auto policy = make_flush_policy(parts("fixed_length", 4, 4));
    policy->join(0);
    CHECK(step_of(*policy, 0).flushes == 0);
    CHECK(policy->buffered_tokens() == 1);
    policy->fold(1);
    CHECK(policy->buffered_tokens() == 0);
    CHECK(step_of(*policy, 2).buffered_tokens == 0);
    const LinearWork work = step_of(*policy, 3);  // the fourth token since its prefill
    CHECK(work.flushes == 1);
    CHECK(work.flushed_tokens == 2);
}

TEST_CASE("a flush policy that is not in the table is the user's mistake") {
    CHECK_THROWS_WITH(make_flush_policy(parts("algined", 4, 4)),
                      "linear.flush.policy: expected one of fixed_length, aligned, staggered, deferred, "
                      "deferred_under_load, got `algined` (did you mean `aligned`?)");
}

TEST_CASE("names of flush policies are distinct and explained, the default first") {
    std::vector<std::string_view> names;
    for (const FlushPolicyEntry& entry : flush_policies()) {
        CHECK_FALSE(entry.help.empty());
        names.push_back(entry.name);
    }
    CHECK(names.front() == FlushSpec{}.policy);
    std::ranges::sort(names);
    CHECK(std::ranges::adjacent_find(names) == names.end());
}

}  // namespace
}  // namespace kvsim
