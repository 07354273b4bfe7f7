// The invariants of sim/README.md that a caller can break from outside are really checked. The others run in
// every scenario of the other files.
#include "sim/base/check.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

ReplicaSpec limits() {
    ReplicaSpec spec;
    spec.max_running = 4;
    spec.step_tokens = 10;
    spec.pool = split_pool(4, 100);
    return spec;
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

const LinearServing kBufferOfTwo{Form::kBuffered, 2, StateFormat::kFp32};

RunResult run(std::vector<Arrival> arrivals, const StepPricer& pricer) {
    return serve_list(std::move(arrivals), serve_spec(limits(), kBufferOfTwo), pricer);
}

RunResult run_with(std::function<void(StepPrice&)> alter) {
    return run({{Time(), 5, 5}}, BrokenPricer(std::move(alter)));
}

TEST_CASE("invariant 1: every request read is accounted for") {
    const ServeSpec spec = serve_spec(limits(), kBufferOfTwo);
    ListSource lost({{Time(), 5, 5}}, {2, 0, 0, 0});  // one of two rows was lost on the way
    CHECK_THROWS_AS(serve(spec, lost, HashPricer()), InvariantError);
    ListSource dropped({{Time(), 5, 5}}, {2, 1, 0, 0});
    CHECK(serve(spec, dropped, HashPricer()).requests.completed == 1);
}

TEST_CASE("invariant 5: the clock is monotone") {
    CHECK_THROWS_AS(run({{Time(500), 5, 5}, {Time(100), 5, 5}}, HashPricer()), InvariantError);
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
    CHECK_THROWS_AS(run({{Time(), 0, 5}}, HashPricer()), InvariantError);
    CHECK_THROWS_AS(run({{Time(), 5, 0}}, HashPricer()), InvariantError);
}

TEST_CASE("a step ends once, and only one runs at a time") {
    Collector collector;
    Replica replica(limits(), serve_spec(limits(), kBufferOfTwo).make_rows(), collector);
    CHECK_THROWS_AS(replica.end_step(Time(1), price_of(Time(1))), InvariantError);
    CHECK(replica.begin_step(Time()) == nullptr);  // nothing has arrived
    replica.arrive(0, {Time(), 5, 5, 0});
    REQUIRE(replica.begin_step(Time()) != nullptr);
    CHECK_THROWS_AS(replica.begin_step(Time()), InvariantError);
}

TEST_CASE("an answer is never longer than declared") {
    CHECK_THROWS_AS(run({{Time(), 5, 5, 4}}, HashPricer()), InvariantError);
    CHECK(run({{Time(), 5, 5, 6}}, HashPricer()).generated_tokens == 5);
}

}  // namespace
}  // namespace kvsim
