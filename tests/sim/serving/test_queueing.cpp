// The loop against queueing theory: one request at a time on each server, one step each.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/base/thread_pool.hpp"
#include "sim/serving/service.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr std::int64_t kRequests = 10'000;  // of the Lindley recursion
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

// ---- 95 % intervals over many runs ----

// Poisson arrivals whose lengths do not matter, drawn as they come.
class PoissonSource final : public ArrivalSource {
  public:
    PoissonSource(std::int64_t requests, double per_ms, std::uint64_t seed)
        : gaps_(seed, "queue gaps"), mean_us_(1e3 / per_ms), left_(requests) {
        counts_.read = requests;
    }
    std::optional<Arrival> next() override {
        if (left_-- <= 0) return std::nullopt;
        now_ += time_from_us(gaps_.exponential(mean_us_));
        return Arrival{now_, 100, 100, 0};
    }
    void left(Time) override {}
    std::span<const std::uint64_t> blocks() const override { return {}; }
    ArrivalCounts counts() const override { return counts_; }

  private:
    RandomStream gaps_;
    double mean_us_;
    std::int64_t left_;
    ArrivalCounts counts_;
    Time now_;
};

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

// Batches into which a run is cut, and 97.5 % quantile of Student's t with one degree of freedom less.
struct Batches {
    int count = 0;
    double student = 0.0;
};
constexpr Batches kReported{20, 2.093};  // of Summary::ci95
constexpr Batches kFew{4, 3.182};

// An interval is honest when batches are much longer than a queue remembers: the relaxation time of M/M/1 is
// 1 / (1 - sqrt(rho))^2 services (Morse 1955), of M/M/k as many, of M/D/1 half of it in heavy traffic. Here a
// batch is at least 25 of these: 12 services at 0.5, 90 at 0.8, 1560 at 0.95, where 20 batches would take
// 800,000 requests a run; so there are four, whose wider interval is as honest.
struct QueueCase {
    double utilisation = 0.0;
    std::int64_t requests = 0;
    Batches batches;
};
const std::vector<QueueCase> kCases{{0.5, 6'000, kReported}, {0.8, 45'000, kReported}, {0.95, 160'000, kFew}};

constexpr int kRuns = 200;  // seeds 1 to 200

double batch_interval(const FinishedRequests& finished, const Batches& batches) {
    const std::size_t size = finished.size() / static_cast<std::size_t>(batches.count);
    std::vector<double> means;
    for (int b = 0; b < batches.count; ++b) {
        double sum = 0.0;
        for (std::size_t i = 0; i < size; ++i)
            sum += to_ms(finished[static_cast<std::size_t>(b) * size + i].queue);
        means.push_back(sum / static_cast<double>(size));
    }
    const double mean = std::accumulate(means.begin(), means.end(), 0.0) / batches.count;
    double squares = 0.0;
    for (const double m : means) squares += (m - mean) * (m - mean);
    return batches.student * std::sqrt(squares / (batches.count - 1) / batches.count);
}

struct Wait {
    std::int64_t completed = 0;
    double mean = 0.0;
    double half = 0.0;  // of its interval
};

Wait run_case(const ServiceSpec& service, int servers, const QueueCase& c, std::uint64_t seed) {
    PoissonSource source(c.requests, servers * c.utilisation / kServiceMs, seed);
    ServiceArrivals one_step_each(source);
    // Checks Little's law, to the picosecond.
    const RunResult r = serve(service_spec(servers), one_step_each, ServicePricer(service, seed));
    const bool reported = c.batches.count == kReported.count;
    return {r.requests.completed, *r.queue_ms.mean,
            reported ? *r.queue_ms.ci95 : batch_interval(r.finished, c.batches)};
}

void check_coverage(ServiceSpec::Kind kind, int servers, const QueueCase& c, double expected) {
    constexpr int kThreads = 2;
    const ServiceSpec service{kind, time_from_us(1e3 * kServiceMs)};
    const std::vector<Wait> waits = parallel_map(
        kRuns, kThreads, [&](std::size_t run) { return run_case(service, servers, c, 1 + run); });
    int covered = 0;
    double sum = 0.0;
    double squares = 0.0;
    for (const Wait& wait : waits) {
        REQUIRE(wait.completed == c.requests);
        covered += std::abs(wait.mean - expected) <= wait.half ? 1 : 0;
        sum += wait.mean;
        squares += wait.mean * wait.mean;
    }
    INFO(servers << " servers at " << c.utilisation << ": " << covered << " of " << kRuns
                 << " intervals cover " << expected << " ms, mean of the runs " << sum / kRuns << " ms");
    CHECK(covered >= 0.90 * kRuns);
    CHECK(covered <= 0.99 * kRuns);
    // All runs together say more than any one: within 3.3 standard errors (99.9 %), which are small.
    const double mean = sum / kRuns;
    const double error = std::sqrt((squares / kRuns - mean * mean) / kRuns);
    CHECK(mean == Approx(expected).margin(3.3 * error));
    CHECK(error < 0.02 * expected);
}

TEST_CASE("M/M/1: 95 % intervals cover rho s / (1 - rho) in 90 to 99 % of 200 runs") {
    for (const QueueCase& c : kCases) {
        const double rho = c.utilisation;
        check_coverage(ServiceSpec::Kind::kExponential, 1, c, rho * kServiceMs / (1.0 - rho));
    }
}

TEST_CASE("M/D/1: 95 % intervals cover rho s / (2 (1 - rho)) in 90 to 99 % of 200 runs") {
    for (QueueCase c : kCases) {
        c.requests /= 2;  // remembers half as long
        const double rho = c.utilisation;
        check_coverage(ServiceSpec::Kind::kConstant, 1, c, rho * kServiceMs / (2.0 * (1.0 - rho)));
    }
}

TEST_CASE("M/M/3: 95 % intervals cover C(3, a) s / (3 - a) in 90 to 99 % of 200 runs") {
    for (const QueueCase& c : kCases) {
        const double load = 3 * c.utilisation;
        check_coverage(ServiceSpec::Kind::kExponential, 3, c,
                       chance_of_waiting(3, load) * kServiceMs / (3 - load));
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
