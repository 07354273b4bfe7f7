// Arrivals one at a time: the same as the list of them, closed loops, and real traces.
#include "sim/workload/arrivals.hpp"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

LengthDistribution constant(std::int64_t value) {
    LengthDistribution d;
    d.value = d.min = d.max = value;
    return d;
}

SyntheticWorkload workload(std::int64_t requests) {
    SyntheticWorkload w;
    w.rate = Frequency(10.0);
    w.requests = requests;
    w.prompt.kind = LengthDistribution::Kind::kLogNormal;
    w.prompt.median = 1000.0;
    w.prompt.sigma = 1.0;
    w.output = constant(10);
    return w;
}

TEST_CASE("an open loop yields what generate() lists") {
    SyntheticWorkload w = workload(200);
    w.prompt.max = 2000;
    const ArrivalList list = generate(w, 3);
    const auto source = make_arrivals(w, 3);
    CHECK(source->counts().read == 0);
    for (const Arrival& expected : list.arrivals) {
        const std::optional<Arrival> arrival = source->next();
        REQUIRE(arrival);
        CHECK(arrival->time == expected.time);
        CHECK(arrival->prompt_tokens == expected.prompt_tokens);
        CHECK(arrival->output_tokens == expected.output_tokens);
        CHECK(source->blocks().empty());
    }
    CHECK_FALSE(source->next());
    CHECK(source->counts().read == 200);
    CHECK(source->counts().clamped == list.clamped);
    CHECK(list.clamped > 0);
}

TEST_CASE("gamma gaps have the mean of the rate and the variance of the burstiness") {
    for (const double burstiness : {0.25, 4.0}) {
        constexpr int kCount = 100'000;
        SyntheticWorkload w = workload(kCount);
        w.burstiness = burstiness;
        const auto source = make_arrivals(w, 11);
        double sum = 0.0, squares = 0.0;
        Time last;
        while (const std::optional<Arrival> arrival = source->next()) {
            const double gap = to_seconds(arrival->time - last);
            last = arrival->time;
            sum += gap;
            squares += (gap - 0.1) * (gap - 0.1);
        }
        // Mean 0.1 s, variance 0.01 / k; standard error of the variance sqrt((2 + 6/k) / n) of itself, since
        // the excess kurtosis of a gamma distribution is 6/k. Bounds at four standard errors.
        CHECK(sum / kCount == Approx(0.1).epsilon(4.0 / std::sqrt(burstiness * kCount)));
        CHECK(squares / kCount ==
              Approx(0.01 / burstiness).epsilon(4.0 * std::sqrt((2.0 + 6.0 / burstiness) / kCount)));
    }
}

TEST_CASE("a closed loop lets one in for each that leaves") {
    SyntheticWorkload w = workload(5);
    w.rate = Frequency();
    w.concurrency = 2;
    const auto source = make_arrivals(w, 1);
    CHECK(source->next()->time == Time());
    CHECK(source->next()->time == Time());
    CHECK_FALSE(source->next());  // both are in
    source->left(Time(70));
    source->left(Time(70));
    source->left(Time(90));
    CHECK(source->next()->time == Time(70));
    CHECK(source->next()->time == Time(70));
    CHECK(source->next()->time == Time(90));
    CHECK(source->counts().read == 5);
    source->left(Time(100));
    CHECK_FALSE(source->next());  // all five have come

    SyntheticWorkload few = workload(3);
    few.concurrency = 8;
    const auto fewer = make_arrivals(few, 1);
    for (int i = 0; i < 3; ++i) CHECK(fewer->next());
    CHECK_FALSE(fewer->next());
}

TEST_CASE("a declared length is told to all, and cuts off") {
    SyntheticWorkload w = workload(1);
    w.declared = 7;
    const auto source = make_arrivals(w, 1);
    const Arrival arrival = *source->next();
    CHECK(arrival.declared_tokens == 7);
    CHECK(arrival.output_tokens == 7);
    CHECK(source->counts().clamped == 1);
}

TEST_CASE("the Mooncake trace, as published") {
    const std::string path = KVSIM_SOURCE_DIR "/../shared/traces/mooncake/conversation_trace.jsonl";
    if (!std::filesystem::exists(path)) {
        std::fprintf(stderr, "SKIPPED: no trace at %s\n", path.c_str());
        return;
    }
    const auto source = make_arrivals(TraceWorkload{path}, 1);
    CHECK(source->block_tokens() == 512);
    std::int64_t rows = 0, longest = 0;
    bool first_block = true, enough_blocks = true;
    while (const std::optional<Arrival> arrival = source->next()) {
        ++rows;
        longest = std::max(longest, arrival->prompt_tokens);
        first_block &= source->blocks().front() == 0;
        enough_blocks &=
            static_cast<std::int64_t>(source->blocks().size()) == (arrival->prompt_tokens + 511) / 512;
    }
    // README of the traces: 12,031 rows, each starting with block 0, inputs up to 126,195 tokens.
    CHECK(rows == 12'031);
    CHECK(longest == 126'195);
    CHECK(first_block);
    CHECK(enough_blocks);
    CHECK(source->counts().read == source->counts().dropped + rows);
}

}  // namespace
}  // namespace kvsim
