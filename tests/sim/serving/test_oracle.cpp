// The engine against the step-by-step oracle, on random small scenarios with tight limits.
#include "sim/base/random.hpp"
#include "sim/serving/serve.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/oracle.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

struct Scenario {
    ArrivalList list;
    ReplicaLimits limits;
    int buffer_length = 1;
    std::optional<Time> horizon;
};

Scenario random_scenario(RandomStream& random) {
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(high - low + 1));
    };
    Scenario s;
    s.limits.max_running = pick(1, 6);
    s.limits.slots_per_request = pick(1, 3);
    s.limits.state_slots =
        pick(s.limits.slots_per_request - 1, 5 * s.limits.slots_per_request);  // none fits, at times
    s.limits.kv_tokens = pick(2, 60);
    s.limits.chunked_prefill_tokens = pick(1, 12);
    s.buffer_length = static_cast<int>(pick(1, 8));
    const std::int64_t requests = pick(1, 30);
    const std::int64_t spread = pick(0, 3000);  // steps take 1 to 1000 ps: from bursts to idle spells
    const std::int64_t longest = pick(1, 30);
    Time now;
    for (std::int64_t i = 0; i < requests; ++i) {
        now += Time(pick(0, 3) == 0 ? 0 : pick(0, spread));  // equal stamps are common
        s.list.arrivals.push_back({now, pick(1, longest), pick(0, 2) == 0 ? 1 : pick(1, longest)});
    }
    s.list.rows_read = requests;
    if (pick(0, 2) == 0) s.horizon = Time(pick(0, now.value() + 3000));
    return s;
}

DecodeForm form_of(const Scenario& s) {
    return make_decode_form({Form::kBuffered, s.buffer_length, StateFormat::kFp32});
}

// Requests in the system, summed over picoseconds, counted from the records alone.
std::int64_t area(const std::vector<Arrival>& arrivals, const std::vector<RequestRecord>& records, Time end) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
        if (records[i].state == RequestState::kRejected || arrivals[i].time > end) continue;
        const bool done = records[i].state == RequestState::kCompleted;
        sum += ((done ? records[i].finished : end) - arrivals[i].time).value();
    }
    return sum;
}

void compare(const Scenario& s) {
    const HashPricer pricer;
    const OracleOutcome expected = run_oracle(s.list.arrivals, s.limits, s.buffer_length, pricer, s.horizon);
    const ServeOutcome actual = serve(s.list, s.limits, form_of(s), pricer, s.horizon);
    const RunResult& result = actual.result;

    REQUIRE(actual.records.size() == expected.records.size());
    bool records_equal = true;
    for (std::size_t i = 0; i < expected.records.size(); ++i) {
        const RequestRecord& a = actual.records[i];
        const RequestRecord& e = expected.records[i];
        records_equal = records_equal && a.state == e.state && a.admitted == e.admitted &&
                        a.first_token == e.first_token && a.finished == e.finished;
    }
    // A request that was to be admitted into a step which the horizon cuts off counts as admitted in both.
    CHECK(records_equal);
    CHECK(result.simulated == expected.simulated);
    CHECK(result.busy == expected.busy);
    CHECK(result.bytes == expected.bytes);
    CHECK(result.steps == expected.steps);
    CHECK(result.flushes == expected.flushes);
    CHECK(result.generated_tokens == expected.generated_tokens);
    std::vector<double> gaps = expected.gaps_ms;
    const Summary itl = summarise(gaps);
    CHECK(result.itl_ms.count == itl.count);
    CHECK(result.itl_ms.p50 == itl.p50);
    CHECK(result.itl_ms.p90 == itl.p90);
    CHECK(result.itl_ms.p99 == itl.p99);
    if (itl.mean) CHECK(*result.itl_ms.mean == Approx(*itl.mean).epsilon(1e-12));
    CHECK(area(s.list.arrivals, actual.records, result.simulated) ==
          area(s.list.arrivals, expected.records, expected.simulated));
}

TEST_CASE("the engine equals the oracle to the picosecond and byte on 6000 random scenarios") {
    RandomStream random(2024, "oracle test");
    std::int64_t rejected = 0;
    std::int64_t unfinished = 0;
    std::int64_t flushes = 0;
    for (int i = 0; i < 6000; ++i) {
        const Scenario s = random_scenario(random);
        INFO("scenario " << i << ", m " << s.buffer_length << ", chunk " << s.limits.chunked_prefill_tokens);
        compare(s);
        const RunResult r = serve(s.list, s.limits, form_of(s), HashPricer(), s.horizon).result;
        rejected += r.requests.rejected;
        unfinished += r.requests.unfinished;
        flushes += r.flushes;
    }
    // The scenarios reach what they are for.
    CHECK(rejected > 1000);
    CHECK(unfinished > 1000);
    CHECK(flushes > 1000);
}

TEST_CASE("the same run repeats exactly") {
    RandomStream random(5, "oracle test");
    for (int i = 0; i < 50; ++i) {
        const Scenario s = random_scenario(random);
        const RunResult a = serve(s.list, s.limits, form_of(s), HashPricer(), s.horizon).result;
        const RunResult b = serve(s.list, s.limits, form_of(s), HashPricer(), s.horizon).result;
        CHECK(a.simulated == b.simulated);
        CHECK(a.itl_ms.mean == b.itl_ms.mean);
        CHECK(a.ttft_ms.mean == b.ttft_ms.mean);
        CHECK(a.bytes == b.bytes);
    }
}

}  // namespace
}  // namespace kvsim
