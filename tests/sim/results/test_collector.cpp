// What the collector makes of requests, gaps and steps worked out by hand.
#include "sim/results/collector.hpp"

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr Time ms(std::int64_t n) {
    return Time(n * 1'000'000'000);
}

StepPrice price(Time time) {
    StepPrice p;
    p.time = time;
    p.time_by_source[static_cast<std::size_t>(Source::kFitted)] = time;
    return p;
}

// queue, ttft, e2e, then interference, preempted, flush; all in ms.
FinishedRequest request(std::int64_t arrived, std::array<std::int64_t, 3> times,
                        std::array<std::int64_t, 3> parts, std::uint32_t output) {
    return {ms(arrived),  ms(times[0]), ms(times[1]), ms(times[2]), ms(parts[0]),
            ms(parts[1]), ms(parts[2]), 100,          output};
}

TEST_CASE("requests, their latencies and where their time went") {
    Collector collector;
    for (int i = 0; i < 3; ++i) collector.arrived(ms(i), 100, 10);
    collector.rejected(Limit::kBlocks);
    CHECK(collector.in_system() == 2);
    collector.preempted();
    collector.finished(request(0, {2, 10, 50}, {5, 4, 1}, 11));
    collector.finished(request(1, {4, 20, 20}, {0, 0, 0}, 1));
    CHECK(collector.in_system() == 0);
    const RunResult r = collector.take({.simulated = ms(100), .read = 5, .dropped = 1});
    CHECK(r.requests.completed == 2);
    CHECK(r.requests.rejected == 1);
    CHECK(r.requests.unfinished == 1);  // read, but not arrived yet
    CHECK(r.rejected_by.blocks == 1);
    CHECK(r.preemptions == 1);
    CHECK(*r.ttft_ms.mean == Approx(15.0));
    CHECK(*r.queue_ms.max == Approx(4.0));
    CHECK(*r.e2e_ms.p50 == Approx(35.0));
    CHECK(r.tpot_ms.count == 1);
    CHECK(*r.tpot_ms.mean == Approx(4.0));  // (50 - 10) / 10
    CHECK(r.one_token_outputs == 1);
    CHECK(r.requests_per_s == Approx(20.0));  // 2 / 0.1 s
    CHECK_FALSE(r.goodput_per_s);             // no objectives

    // Sums over both, halved: queue 2 + 4, prefill 8 + 16, own decode 40 - 10.
    const Breakdown& b = r.breakdown;
    CHECK(b.requests == 2);
    CHECK(b.queue_ms == Approx(3.0));
    CHECK(b.prefill_ms == Approx(12.0));
    CHECK(b.decode_ms == Approx(15.0));
    CHECK(b.interference_ms == Approx(2.5));
    CHECK(b.preempted_ms == Approx(2.0));
    CHECK(b.flush_ms == Approx(0.5));
    CHECK(b.e2e_ms() == Approx(*r.e2e_ms.mean));
    // 1 % of two, rounded up: the one of 50 ms.
    CHECK(r.slowest_breakdown.requests == 1);
    CHECK(r.slowest_breakdown.e2e_ms() == Approx(50.0));
    CHECK(r.slowest_breakdown.interference_ms == Approx(5.0));
    CHECK(r.finished.size() == 2);
}

TEST_CASE("the slowest are a hundredth, of equal ones the first") {
    Collector collector;
    for (int i = 0; i < 250; ++i) collector.arrived(ms(i), 100, 10);
    // E2E 10 ms, but for one of 30 ms and five of 20 ms, whose queue times tell which they are.
    for (int i = 0; i < 250; ++i) {
        const std::int64_t e2e = i == 200 ? 30 : i % 50 == 10 ? 20 : 10;
        collector.finished(request(i, {i % 50 == 10 ? i / 50 + 1 : 0, 10, e2e}, {0, 0, 0}, 2));
    }
    const RunResult r = collector.take({.simulated = ms(300), .read = 250});
    // Three: 30 ms, and the first two of 20 ms, with queue times of 1 and 2 ms.
    CHECK(r.slowest_breakdown.requests == 3);
    CHECK(r.slowest_breakdown.e2e_ms() == Approx(70.0 / 3.0));
    CHECK(r.slowest_breakdown.queue_ms == Approx(1.0));
}

TEST_CASE("goodput counts requests that met every objective; the rest, finished or not, are misses") {
    Collector collector({.ttft = ms(10), .tpot = ms(4), .e2e = ms(60)});
    for (int i = 0; i < 6; ++i) collector.arrived(ms(0), 100, 10);
    collector.finished(request(0, {0, 10, 50}, {0, 0, 0}, 11));  // on the bound of TTFT and TPOT: met
    collector.finished(request(0, {0, 11, 50}, {0, 0, 0}, 11));  // TTFT
    collector.finished(request(0, {0, 10, 51}, {0, 0, 0}, 11));  // TPOT 4.1
    collector.finished(request(0, {0, 10, 61}, {0, 0, 0}, 31));  // E2E
    collector.finished(request(0, {0, 9, 9}, {0, 0, 0}, 1));     // no TPOT to miss
    const RunResult r = collector.take({.simulated = ms(500), .read = 6});
    CHECK(*r.goodput_per_s == Approx(4.0));  // 2 / 0.5 s
    CHECK(*r.slo_attainment == Approx(2.0 / 6.0));
}

TEST_CASE("what comes before the warm-up counts in totals alone") {
    Collector collector({.ttft = {}, .tpot = {}, .e2e = ms(1000)}, ms(100));
    collector.arrived(ms(99), 100, 3);
    collector.arrived(ms(100), 100, 3);
    StepShape shape;
    collector.step(shape, price(ms(10)), 1, ms(99));
    collector.tokens(5);
    collector.gaps(ms(7), 5, 5);
    collector.step(shape, price(ms(10)), 1, ms(110));
    collector.tokens(6);
    collector.gaps(ms(9), 6, 6);
    collector.finished(request(99, {0, 1, 30}, {0, 0, 0}, 3));  // leaves after the warm-up
    collector.finished(request(100, {0, 3, 40}, {0, 0, 0}, 3));
    const RunResult r = collector.take({.simulated = ms(300), .read = 2});
    CHECK(r.requests.completed == 2);
    CHECK(r.generated_tokens == 11);
    CHECK(r.ttft_ms.count == 1);
    CHECK(*r.ttft_ms.mean == Approx(3.0));
    CHECK(r.breakdown.requests == 1);
    CHECK(r.itl_ms.count == 6);
    CHECK(*r.itl_ms.mean == Approx(9.0));
    CHECK(r.output_tokens_per_s == Approx(6 / 0.2));
    CHECK(r.requests_per_s == Approx(2 / 0.2));
    CHECK(*r.goodput_per_s == Approx(1 / 0.2));
    CHECK(*r.slo_attainment == Approx(1.0));
    CHECK(r.finished.size() == 2);
}

TEST_CASE("gaps per delivery and per token") {
    Collector collector;
    // Three deliveries of 12 ms: one of 3 tokens, two of 1.
    collector.gaps(ms(12), 1, 3);
    collector.gaps(ms(12), 2, 2);
    collector.gaps(ms(5), 0, 0);
    const RunResult r = collector.take({.simulated = ms(50)});
    CHECK(r.itl_ms.count == 3);
    CHECK(*r.itl_ms.mean == Approx(12.0));
    CHECK(r.itl_token_ms.count == 5);
    CHECK(*r.itl_token_ms.mean == Approx(36.0 / 5.0));
    CHECK(*r.itl_token_ms.p50 == Approx(4.0));  // of 4, 4, 4, 12, 12
    CHECK(*r.acceptance_length == Approx(5.0 / 3.0));
    CHECK_FALSE(Collector{}.take({}).acceptance_length);
}

TEST_CASE("gaps per token count the deliveries of one token before the first of several") {
    Collector collector;
    collector.gaps(ms(6), 3, 3);
    collector.gaps(ms(10), 1, 5);
    const RunResult r = collector.take({ms(100)});
    CHECK(r.itl_ms.count == 4);
    CHECK(*r.itl_ms.mean == Approx(7.0));
    CHECK(r.itl_token_ms.count == 8);
    CHECK(*r.itl_token_ms.mean == Approx(28.0 / 8.0));  // 6, 6, 6 and five times 2
    Collector single;
    single.gaps(ms(6), 3, 3);
    CHECK(single.take({ms(100)}).itl_token_ms.count == 3);
}

TEST_CASE("steps add up") {
    Collector collector;
    StepShape shape;
    shape[Form::kBuffered] = LinearWork{4, 4, 0, 0};
    shape[Form::kBuffered].flushes = 1;
    StepPrice p = price(ms(10));
    p.linear_time = ms(4);
    p.flush_time = ms(1);
    p.bytes[static_cast<std::size_t>(Owner::kWeights)] = Bytes(1000);
    collector.step(shape, p, 5, ms(10));
    collector.step(shape, p, 6, ms(20));
    collector.tokens(8);
    CHECK(collector.busy() == ms(20));
    const RunResult r = collector.take({.simulated = ms(40)});
    CHECK(r.steps == 2);
    CHECK(r.busy == ms(20));
    CHECK(r.linear_time == ms(8));
    CHECK(r.flush_time == ms(2));
    CHECK(r.linear_tokens == 8);
    CHECK(r.flushes == 2);
    CHECK(r.bytes[static_cast<std::size_t>(Owner::kWeights)] == Bytes(2000));
    CHECK(r.mean_batch == Approx(5.5));
    CHECK(r.generated_tokens == 8);
    CHECK(r.output_tokens_per_s == Approx(200.0));
}

TEST_CASE("what does not add up is a fault of ours") {
    StepPrice p = price(ms(10));
    p.time = ms(11);
    CHECK_THROWS_AS(Collector{}.step({}, p, 1, ms(11)), InvariantError);
    p = price(ms(10));
    p.flush_time = ms(11);
    CHECK_THROWS_AS(Collector{}.step({}, p, 1, ms(11)), InvariantError);
    CHECK_THROWS_AS(Collector{}.finished(request(0, {3, 2, 10}, {0, 0, 0}, 2)), InvariantError);
    CHECK_THROWS_AS(Collector{}.finished(request(0, {0, 2, 10}, {4, 4, 1}, 2)), InvariantError);
    CHECK_THROWS_AS(Collector{}.gaps(ms(1), 2, 1), InvariantError);
    CHECK_THROWS_AS(Collector{}.rejected(Limit::kWeights), InvariantError);

    Collector busy;
    busy.step({}, price(ms(10)), 1, ms(10));
    CHECK_THROWS_AS(busy.take({.simulated = ms(9)}), InvariantError);
    CHECK(busy.take({.simulated = ms(9)}, 2).steps == 1);  // two replicas
    Collector lost;
    lost.arrived(ms(0), 1, 1);
    CHECK_THROWS_AS(lost.take({.simulated = ms(9)}), InvariantError);  // none was read
}

}  // namespace
}  // namespace kvsim
