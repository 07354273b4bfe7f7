// Synthetic arrivals and lengths: moments inside intervals that follow from the distributions, and exact
// corners.
#include <algorithm>
#include <cmath>

#include "sim/workload/workload.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

LengthDistribution constant(std::int64_t value) {
    LengthDistribution d;
    d.value = value;
    return d;
}

SyntheticWorkload workload(std::int64_t requests, double rate = 10.0) {
    SyntheticWorkload w;
    w.rate = Frequency(rate);
    w.requests = requests;
    w.prompt = constant(100);
    w.output = constant(10);
    return w;
}

TEST_CASE("Poisson arrivals have exponential gaps") {
    constexpr std::int64_t kRequests = 100'000;
    constexpr double kRate = 8.0;
    const ArrivalList list = generate(workload(kRequests, kRate), 5);
    REQUIRE(list.arrivals.size() == kRequests);
    CHECK(list.rows_read == kRequests);
    double sum = 0.0;
    double squares = 0.0;
    std::int64_t above_mean = 0;
    Time previous;
    for (const Arrival& a : list.arrivals) {
        REQUIRE(a.time >= previous);
        const double gap = to_seconds(a.time - previous);
        previous = a.time;
        sum += gap;
        squares += gap * gap;
        above_mean += gap > 1.0 / kRate ? 1 : 0;
    }
    // Mean 1/r with standard error 1/(r sqrt n); second moment 2/r^2 with standard error sqrt(20)/(r^2 sqrt
    // n), since E[x^4] = 24/r^4; P(x > 1/r) = 1/e. Bounds at four standard errors.
    const double n = static_cast<double>(kRequests);
    CHECK(sum / n == Approx(1.0 / kRate).margin(4.0 / (kRate * std::sqrt(n))));
    CHECK(squares / n ==
          Approx(2.0 / (kRate * kRate)).margin(4.0 * std::sqrt(20.0) / (kRate * kRate * std::sqrt(n))));
    const double p = std::exp(-1.0);
    CHECK(static_cast<double>(above_mean) / n == Approx(p).margin(4.0 * std::sqrt(p * (1.0 - p) / n)));
}

TEST_CASE("log-normal lengths have the given median and spread") {
    constexpr std::int64_t kRequests = 100'000;
    SyntheticWorkload w = workload(kRequests);
    w.prompt.kind = LengthDistribution::Kind::kLogNormal;
    w.prompt.median = 1000.0;
    w.prompt.sigma = 0.5;
    w.prompt.max = 1'000'000;
    const ArrivalList list = generate(w, 9);
    // ln x ~ N(ln 1000, 0.5): standard error of the mean 0.5/sqrt n, of the variance sqrt(2/n) 0.25; rounding
    // to whole tokens moves ln x by less than 1e-5 on average here.
    double sum = 0.0;
    double squares = 0.0;
    for (const Arrival& a : list.arrivals) {
        const double z = std::log(static_cast<double>(a.prompt_tokens)) - std::log(1000.0);
        sum += z;
        squares += z * z;
    }
    const double n = static_cast<double>(kRequests);
    CHECK(sum / n == Approx(0.0).margin(4.0 * 0.5 / std::sqrt(n) + 1e-5));
    CHECK(squares / n == Approx(0.25).margin(4.0 * 0.25 * std::sqrt(2.0 / n) + 1e-5));
    CHECK(list.clamped == 0);
}

TEST_CASE("empirical lengths follow the quantiles between which they lie") {
    constexpr std::int64_t kRequests = 100'000;
    SyntheticWorkload w = workload(kRequests);
    w.output.kind = LengthDistribution::Kind::kEmpirical;
    w.output.quantile_tokens = {1.0, 129.0, 1000.0};  // minimum, median, maximum
    const ArrivalList list = generate(w, 3);
    std::int64_t at_most_median = 0;
    double sum = 0.0;
    for (const Arrival& a : list.arrivals) {
        REQUIRE(a.output_tokens >= 1);
        REQUIRE(a.output_tokens <= 1000);
        at_most_median += a.output_tokens <= 129 ? 1 : 0;
        sum += static_cast<double>(a.output_tokens);
    }
    // Half the draws are uniform on 1 .. 129 and half on 129 .. 1000: mean (65 + 564.5)/2 = 314.75. A draw
    // rounds down to the median up to 129.5, half a token out of 871: P = 0.5 + 0.25/435.5. Variance of the
    // mixture: (128^2/12 + 871^2/12)/2 + ((564.5 - 65)/2)^2 = 32292 + 62375 = 94668, standard deviation
    // 307.7.
    const double n = static_cast<double>(kRequests);
    CHECK(static_cast<double>(at_most_median) / n ==
          Approx(0.5 + 0.25 / 435.5).margin(4.0 * 0.5 / std::sqrt(n)));
    CHECK(sum / n == Approx(314.75).margin(4.0 * 307.7 / std::sqrt(n)));
}

TEST_CASE("lengths are clamped and the clamps counted") {
    SyntheticWorkload w = workload(50);
    w.prompt.min = 150;  // the constant is 100
    w.output.max = 4;    // the constant is 10
    const ArrivalList list = generate(w, 1);
    CHECK(list.clamped == 100);
    for (const Arrival& a : list.arrivals) {
        CHECK(a.prompt_tokens == 150);
        CHECK(a.output_tokens == 4);
    }
    SyntheticWorkload single = workload(20);
    single.prompt.kind = LengthDistribution::Kind::kEmpirical;
    single.prompt.quantile_tokens = {7.0};
    for (const Arrival& a : generate(single, 1).arrivals) CHECK(a.prompt_tokens == 7);
}

TEST_CASE("the same seed repeats, another one differs, and streams are independent") {
    const auto times = [](const ArrivalList& list) {
        std::vector<std::int64_t> values;
        for (const Arrival& a : list.arrivals) values.push_back(a.time.value());
        return values;
    };
    SyntheticWorkload w = workload(100);
    const auto first = times(generate(w, 1));
    CHECK(first == times(generate(w, 1)));
    CHECK(first != times(generate(w, 2)));
    w.prompt.kind = LengthDistribution::Kind::kLogNormal;  // draws numbers, but not from the arrivals' stream
    w.prompt.median = 10.0;
    w.prompt.sigma = 1.0;
    CHECK(first == times(generate(w, 1)));
}

TEST_CASE("a rate whose arrivals lie beyond simulated time is the user's mistake") {
    CHECK_THROWS_AS(generate(workload(1000, 1e-5), 1),
                    ConfigError);  // 1000 requests in 1e8 s; the range is 9.2e6 s
}

}  // namespace
}  // namespace kvsim
