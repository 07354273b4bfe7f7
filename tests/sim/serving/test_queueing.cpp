// The loop against queueing theory: one request at a time, one-token answers, so that a request is one
// prefill step.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/serving/service.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr int kRuns = 30;
constexpr std::int64_t kRequests = 10'000;
constexpr double kServiceMs = 1.0;
constexpr std::int64_t kTokensPerMs = 1'000'000;  // of a prompt whose service takes its length

Time service_time(const StepShape& shape) {
    return Time(shape.prefill.new_tokens * 1000);  // kTokensPerMs tokens in 1 ms
}

// One server: a single request at once, and prompts of any length in one step.
ReplicaSpec one_server() {
    ReplicaSpec spec;
    spec.max_running = 1;
    spec.step_tokens = 1'000'000'000;
    spec.pool = split_pool(1, 1'000'000'000'000);
    return spec;
}

struct Queue {
    std::vector<Arrival> arrivals;
    RunResult result;
};

// A run with Poisson arrivals at utilisation `rho`.
Queue run_queue(double rho, bool exponential_service, std::uint64_t seed) {
    RandomStream gaps(seed, "queue gaps");
    RandomStream service(seed, "queue service");
    Queue queue;
    Time now;
    for (std::int64_t i = 0; i < kRequests; ++i) {
        now += time_from_us(1e3 * gaps.exponential(kServiceMs / rho));
        const double ms = exponential_service ? service.exponential(kServiceMs) : kServiceMs;
        queue.arrivals.push_back({now, 1 + static_cast<std::int64_t>(ms * kTokensPerMs), 1, 0});
    }
    const FakePricer pricer(service_time);
    queue.result = serve_list(queue.arrivals, serve_spec(one_server(), {}), pricer);
    REQUIRE(queue.result.requests.completed == kRequests);
    return queue;
}

// Checks that the mean over independent runs is `expected` within Student's 99.9 % interval (29 degrees of
// freedom).
void check_wait(double rho, bool exponential_service, double expected) {
    constexpr double kStudent = 3.659;
    double sum = 0.0;
    double squares = 0.0;
    for (int run = 0; run < kRuns; ++run) {
        const Queue queue = run_queue(rho, exponential_service, static_cast<std::uint64_t>(1 + run));
        const double wait = *queue.result.queue_ms.mean;
        sum += wait;
        squares += wait * wait;
    }
    const double mean = sum / kRuns;
    const double deviation = std::sqrt((squares - kRuns * mean * mean) / (kRuns - 1));
    INFO("utilisation " << rho);
    CHECK(mean == Approx(expected).margin(kStudent * deviation / std::sqrt(kRuns)));
    CHECK(kStudent * deviation / std::sqrt(kRuns) <
          0.2 * expected);  // the interval is narrow enough to mean something
}

TEST_CASE("waits follow the Lindley recursion to the picosecond") {
    // w_i = max(0, w_{i-1} + s_{i-1} - gap_i): exact, whatever the draws.
    for (const bool exponential : {false, true}) {
        const Queue queue = run_queue(0.9, exponential, 77);
        Time wait;
        bool equal = true;
        for (std::size_t i = 0; i < queue.arrivals.size(); ++i) {
            const Arrival& arrival = queue.arrivals[i];
            equal = equal && queue.result.finished[i].queue == wait;
            if (i + 1 == queue.arrivals.size()) break;
            const Time service(arrival.prompt_tokens * 1000);
            wait = std::max(Time(), wait + service - (queue.arrivals[i + 1].time - arrival.time));
        }
        CHECK(equal);
        CHECK(queue.result.one_token_outputs == kRequests);
    }
}

TEST_CASE("M/D/1: mean wait is rho s / (2 (1 - rho))") {
    for (const double rho : {0.3, 0.5, 0.7, 0.9})
        check_wait(rho, false, rho * kServiceMs / (2.0 * (1.0 - rho)));
}

TEST_CASE("M/M/1: mean wait is rho s / (1 - rho)") {
    for (const double rho : {0.3, 0.6, 0.9}) check_wait(rho, true, rho * kServiceMs / (1.0 - rho));
}

// Poisson arrivals whose lengths do not matter.
ListSource poisson(double per_ms, std::uint64_t seed) {
    RandomStream gaps(seed, "queue gaps");
    std::vector<Arrival> arrivals;
    Time now;
    for (std::int64_t i = 0; i < kRequests; ++i) {
        now += time_from_us(1e3 * gaps.exponential(1.0 / per_ms));
        arrivals.push_back({now, 100, 100, 0});
    }
    return ListSource(std::move(arrivals));
}

// Erlang's C formula: the chance that an arrival waits, with `load` = arrival rate x mean service.
double chance_of_waiting(int servers, double load) {
    double term = 1.0;  // load^n / n!
    double sum = 0.0;
    for (int n = 0; n < servers; ++n) {
        sum += term;
        term *= load / (n + 1);
    }
    const double all_busy = term * servers / (servers - load);
    return all_busy / (sum + all_busy);
}

TEST_CASE("M/M/k in the test configuration: mean wait is C(k, a) s / (k - a)") {
    constexpr double kStudent = 3.659;
    const ServiceSpec service{ServiceSpec::Kind::kExponential, time_from_us(1e3 * kServiceMs)};
    for (const auto& [servers, rho] : {std::pair{1, 0.8}, std::pair{3, 0.5}, std::pair{3, 0.9}}) {
        const double load = servers * rho;
        const double expected = chance_of_waiting(servers, load) * kServiceMs / (servers - load);
        double sum = 0.0;
        double squares = 0.0;
        for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
            ListSource source = poisson(load / kServiceMs, seed);
            ServiceArrivals one_step_each(source);
            const RunResult r = serve(service_spec(servers), one_step_each, ServicePricer(service, seed));
            REQUIRE(r.requests.completed == kRequests);
            sum += *r.queue_ms.mean;
            squares += *r.queue_ms.mean * *r.queue_ms.mean;
        }
        const double mean = sum / kRuns;
        const double deviation = std::sqrt((squares - kRuns * mean * mean) / (kRuns - 1));
        INFO(servers << " servers at " << rho);
        CHECK(mean == Approx(expected).margin(kStudent * deviation / std::sqrt(kRuns)));
        CHECK(kStudent * deviation / std::sqrt(kRuns) < 0.2 * expected);
    }
}

TEST_CASE("a constant service takes its time, and one queue feeds whichever server is idle") {
    // Two servers of 10 ms; arrivals at 0, 0, 1, 12 ms. The third waits until 10, the fourth finds a server.
    const Time ms(1'000'000'000);
    ListSource source({{Time(), 5, 5}, {Time(), 5, 5}, {ms, 5, 5}, {ms * 12, 5, 5}});
    ServiceArrivals one_step_each(source);
    const ServicePricer pricer({ServiceSpec::Kind::kConstant, ms * 10}, 1);
    const RunResult r = serve(service_spec(2), one_step_each, pricer);
    REQUIRE(r.finished.size() == 4);
    CHECK(r.finished[2].queue == ms * 9);
    CHECK(r.finished[3].queue == Time());
    CHECK(r.simulated == ms * 22);
}

}  // namespace
}  // namespace kvsim
