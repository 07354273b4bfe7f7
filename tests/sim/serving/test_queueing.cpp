// The loop against queueing theory: one request at a time, one-token answers, so that a request is one
// prefill step.
#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/base/random.hpp"
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

}  // namespace
}  // namespace kvsim
