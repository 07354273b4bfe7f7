// The invariants of sim/README.md that a caller can break from outside are really checked. The others run in
// every scenario of the other files.
#include "sim/base/check.hpp"
#include "sim/serving/serve.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

ReplicaLimits limits() {
    ReplicaLimits l;
    l.max_running = 4;
    l.state_slots = 4;
    l.kv_tokens = 100;
    l.chunked_prefill_tokens = 10;
    return l;
}

ArrivalList list_of(std::vector<Arrival> arrivals) {
    ArrivalList list;
    list.rows_read = static_cast<std::int64_t>(arrivals.size());
    list.arrivals = std::move(arrivals);
    return list;
}

// Alters an otherwise sound price.
class BrokenPricer final : public StepPricer {
  public:
    explicit BrokenPricer(std::function<void(StepPrice&)> alter) : alter_(std::move(alter)) {}
    StepPrice price(const StepShape&) const override {
        StepPrice price = price_of(Time(1000));
        alter_(price);
        return price;
    }

  private:
    std::function<void(StepPrice&)> alter_;
};

RunResult run(const ArrivalList& list, const StepPricer& pricer) {
    return serve(list, limits(), make_decode_form({Form::kBuffered, 2, StateFormat::kFp32}), pricer,
                 std::nullopt)
        .result;
}

RunResult run_with(std::function<void(StepPrice&)> alter) {
    return run(list_of({{Time(), 5, 5}}), BrokenPricer(std::move(alter)));
}

TEST_CASE("invariant 1: every request read is accounted for") {
    ArrivalList list = list_of({{Time(), 5, 5}});
    list.rows_read = 2;  // one row was lost on the way
    CHECK_THROWS_AS(run(list, FakePricer([](const StepShape&) { return Time(1); })), InvariantError);
    list.dropped_zero_output = 1;
    CHECK(run(list, FakePricer([](const StepShape&) { return Time(1); })).requests.completed == 1);
}

TEST_CASE("invariant 5: the clock is monotone") {
    CHECK_THROWS_AS(run(list_of({{Time(500), 5, 5}, {Time(100), 5, 5}}),
                        FakePricer([](const StepShape&) { return Time(1); })),
                    InvariantError);
}

TEST_CASE("invariant 7: a price adds up") {
    CHECK_NOTHROW(run_with([](StepPrice&) {}));
    CHECK_THROWS_AS(run_with([](StepPrice& p) { p.time = Time(1001); }),
                    InvariantError);  // sources sum to 1000
    CHECK_THROWS_AS(run_with([](StepPrice& p) { p = price_of(Time(0)); }), InvariantError);
    CHECK_THROWS_AS(run_with([](StepPrice& p) { p = price_of(Time(-5)); }), InvariantError);
    CHECK_THROWS_AS(run_with([](StepPrice& p) { p.linear_time = Time(1001); }), InvariantError);
    CHECK_THROWS_AS(run_with([](StepPrice& p) { p.bytes[2] = Bytes(-1); }), InvariantError);
}

TEST_CASE("a request without tokens never reaches a replica") {
    CHECK_THROWS_AS(run(list_of({{Time(), 0, 5}}), HashPricer()), InvariantError);
    CHECK_THROWS_AS(run(list_of({{Time(), 5, 0}}), HashPricer()), InvariantError);
}

TEST_CASE("a step ends once, and only one runs at a time") {
    const std::vector<Arrival> arrivals{{Time(), 5, 5}};
    Replica replica(arrivals, limits(), make_decode_form({}));
    StepTotals totals;
    CHECK_THROWS_AS(replica.end_step(Time(1), totals), InvariantError);
    CHECK(replica.begin_step(Time()) == nullptr);  // nothing has arrived
    CHECK_FALSE(replica.arrive(0));
    REQUIRE(replica.begin_step(Time()) != nullptr);
    CHECK_THROWS_AS(replica.begin_step(Time()), InvariantError);
}

}  // namespace
}  // namespace kvsim
