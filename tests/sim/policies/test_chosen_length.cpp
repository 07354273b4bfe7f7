// The choice of form and length by predicted time: what is chosen when, and what a change costs.
#include <functional>
#include <utility>
#include <vector>

#include "sim/policies/form.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

class FakeTimes final : public LengthTimes {
  public:
    explicit FakeTimes(std::function<double(int, std::int64_t)> us) : us_(std::move(us)) {}
    Time step_time(int buffer_length, std::int64_t rows) const override {
        return time_from_us(us_(buffer_length, rows));
    }

  private:
    std::function<double(int, std::int64_t)> us_;
};

// Recurrent is faster below ten rows, by far; lengths cost the same.
const FakeTimes kFewRowsRecurrent([](int length, std::int64_t rows) {
    const auto n = static_cast<double>(rows);
    return length == 1 ? 10.0 + 2.0 * n : 20.0 + n;
});

LinearServing automatic(bool form, bool length, int ring) {
    LinearServing linear{Form::kBuffered, ring, StateFormat::kFp32};
    linear.choose_form = form;
    linear.choose_length = length;
    return linear;
}

class Replica {
  public:
    Replica(const LinearServing& linear, const LengthTimes& times)
        : form_(make_decode_form(linear, &times)) {}

    void join(int rows) {
        for (int i = 0; i < rows; ++i) tickets_.emplace_back(form_.flush->join(step_), step_);
    }
    void leave(int rows) {
        for (int i = 0; i < rows; ++i) {
            form_.flush->leave(tickets_.back().first, tickets_.back().second, step_);
            tickets_.pop_back();
        }
    }
    StepShape step() {
        StepShape shape;
        form_.flush->step(step_++, {}, shape);
        // Whatever the form: every row takes part, in one of them.
        const auto rows = static_cast<std::int64_t>(tickets_.size());
        CHECK(shape[Form::kRecurrent].sequences + shape[Form::kBuffered].sequences == rows);
        CHECK(shape.tokens() == rows);
        return shape;
    }
    void steps(int count) {
        for (int i = 0; i < count; ++i) step();
    }
    std::int64_t records() const { return form_.flush->buffered_tokens(); }

  private:
    DecodeForm form_;
    std::int64_t step_ = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> tickets_;
};

TEST_CASE("few rows decode in the recurrent form, many in the buffered one") {
    Replica few(automatic(true, false, 4), kFewRowsRecurrent);
    few.join(5);  // 20 us against 25
    for (int i = 0; i < 10; ++i) CHECK(few.step()[Form::kRecurrent].sequences == 5);
    CHECK(few.records() == 0);
    Replica many(automatic(true, false, 4), kFewRowsRecurrent);
    many.join(20);  // 50 us against 40
    for (int i = 0; i < 10; ++i) CHECK(many.step()[Form::kBuffered].sequences == 20);
}

TEST_CASE("a change to the recurrent form flushes every row in that step") {
    constexpr int kRing = 8;
    Replica replica(automatic(true, false, kRing), kFewRowsRecurrent);
    replica.join(20);
    replica.steps(kRing + 3);  // a cycle, and three records in each row
    CHECK(replica.records() == 60);
    replica.leave(15);
    const StepShape change = replica.step();
    CHECK(change[Form::kRecurrent].sequences == 0);
    CHECK(change[Form::kBuffered].buffered_tokens == 15);
    CHECK(change[Form::kBuffered].flushes == 5);
    CHECK(change[Form::kBuffered].flushed_tokens == 20);
    CHECK(replica.records() == 0);
    CHECK(replica.step()[Form::kRecurrent].sequences == 5);
    // Back: buffers fill from nothing, in the phases that rows had.
    replica.join(15);
    replica.steps(kRing - 2);
    CHECK(replica.records() == 0);
    const StepShape back = replica.step();  // kRing steps after the change
    CHECK(back[Form::kBuffered].sequences == 20);
    CHECK(back[Form::kBuffered].buffered_tokens == 0);
}

TEST_CASE("a choice stands for as many steps as the ring has records") {
    constexpr int kRing = 6;
    Replica replica(automatic(true, false, kRing), kFewRowsRecurrent);
    replica.join(5);
    replica.step();
    replica.join(15);
    for (int i = 1; i < kRing; ++i) CHECK(replica.step()[Form::kRecurrent].sequences == 20);
    CHECK(replica.step()[Form::kBuffered].sequences == 20);
}

TEST_CASE("a choice stands unless another is faster by two in a thousand") {
    for (const auto& [gain_us, changes] : {std::pair{0.1, false}, std::pair{0.3, true}}) {
        // The recurrent form is faster for one row, the buffered by so much of 100 us for two.
        const FakeTimes times([gain = gain_us](int length, std::int64_t rows) {
            if (rows == 1) return length == 1 ? 50.0 : 60.0;
            return length == 1 ? 100.0 : 100.0 - gain;
        });
        Replica replica(automatic(true, false, 4), times);
        replica.join(1);
        replica.steps(10);
        replica.join(1);
        CHECK((replica.step()[Form::kBuffered].sequences == 2) == changes);
    }
}

TEST_CASE("the best length for the batch, of those that the ring holds") {
    // Fastest at m = rows.
    const FakeTimes times([](int length, std::int64_t rows) {
        return 100.0 + std::abs(static_cast<double>(length) - static_cast<double>(rows));
    });
    for (const int rows : {4, 16, 64}) {
        Replica replica(automatic(false, true, 32), times);
        replica.join(rows);
        const int expected = std::min(rows, 32);
        replica.steps(3 * 32);  // the first cycle is as long as the ring, then all flush together
        int since = 0;
        while (replica.step()[Form::kBuffered].flushes == 0) ++since;
        for (since = 1; replica.step()[Form::kBuffered].flushes == 0;) ++since;
        CHECK(since == expected);
    }
}

TEST_CASE("a steady batch starts with its choice made") {
    const FakeTimes times([](int length, std::int64_t) { return length == 4 ? 50.0 : 100.0; });
    const LinearServing linear = automatic(true, true, 32);
    const DecodeForm form = make_decode_form(linear, &times);
    fill_buffers(*form.flush, linear, 64);
    for (std::int64_t step = 0; step < 8; ++step) {
        StepShape shape;
        form.flush->step(step, {}, shape);
        CHECK(shape[Form::kBuffered].flushes == 16);
        CHECK(shape[Form::kBuffered].buffered_tokens == 64 * 3 / 2);
    }
}

}  // namespace
}  // namespace kvsim
