// The engine against the step-by-step oracle, on random small scenarios with tight limits.
#include <algorithm>
#include <array>
#include <tuple>

#include "sim/base/random.hpp"
#include "sim/serving/sampled_rows.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/sim/serving/oracle.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

struct Scenario {
    std::vector<Arrival> arrivals;
    OracleSpec spec;
    std::optional<Time> horizon;
};

class Picker {
  public:
    explicit Picker(std::uint64_t seed) : random_(seed, "oracle test") {}
    std::int64_t operator()(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random_.bits() % static_cast<std::uint64_t>(high - low + 1));
    }

  private:
    RandomStream random_;
};

PoolSize random_pool(Picker& pick) {
    PoolSize pool;
    pool.page_tokens = pick(1, 5);
    if (pick(0, 1) == 0) {  // slots and pages apart
        pool.slots_per_request = pick(1, 3);
        pool.slots = pick(pool.slots_per_request - 1, 6 * pool.slots_per_request);  // none fits, at times
        pool.units = pick(2, 60) / pool.page_tokens;
        pool.slots_per_snapshot = 1;
        return pool;
    }
    pool.slots_per_request = 0;
    pool.units_per_request = pick(0, 4);
    pool.units_per_page = pick(0, 3);
    pool.units_per_snapshot = pick(0, 3);
    pool.units = pick(0, 60);
    pool.unit_limit = Limit::kBlocks;
    return pool;
}

SchedulerSpec random_scheduler(Picker& pick) {
    SchedulerSpec s;
    s.steps = pick(0, 1) == 0 ? StepRule::kPrefillFirst : StepRule::kMixed;
    s.order = pick(0, 1) == 0 ? QueueOrder::kFirstCome : QueueOrder::kShortestFirst;
    s.victim = pick(0, 1) == 0 ? VictimRule::kFewestOutput : VictimRule::kLastAdmitted;
    s.admission = static_cast<AdmissionRule>(pick(0, 2));
    s.ratio_steps = static_cast<int>(pick(1, 10));
    s.watermark = pick(0, 3) == 0 ? 0.1 : 0.0;
    return s;
}

SpeculationSpec random_speculation(Picker& pick) {
    SpeculationSpec s;
    const auto drafts = [&](int low) { return static_cast<int>(pick(low, 4)); };
    s.policy = pick(0, 1) == 0 ? "static" : "table";
    if (s.policy == "static") {
        s.drafts = drafts(1);
    } else {
        s.table = {{1, drafts(0)}, {2, drafts(0)}, {4, drafts(0)}};
    }
    for (std::int64_t i = pick(1, 3); i > 0; --i)
        s.acceptance.rates.push_back(static_cast<double>(pick(0, 4)) / 4.0);
    if (pick(0, 3) == 0) s.acceptance.half_context = static_cast<double>(pick(5, 100));
    return s;
}

PrefixCacheSpec random_cache(Picker& pick, const PoolSize& pool) {
    PrefixCacheSpec cache;
    cache.snapshot_tokens = static_cast<int>(pick(1, 24));
    cache.slots_in_use = static_cast<int>(pick(1, std::max<std::int64_t>(pool.slots_per_request, 1)));
    cache.at_preemption = pick(0, 7) != 0;
    return cache;
}

OracleSpec random_spec(Picker& pick) {
    OracleSpec s;
    s.replica.max_running = pick(1, 6);
    s.replica.step_tokens = pick(1, 12);
    s.replica.pool = random_pool(pick);
    s.replica.scheduler = random_scheduler(pick);
    if (pick(0, 2) != 0) s.replica.prefix_cache = random_cache(pick, s.replica.pool);
    s.linear.form = pick(0, 3) == 0 ? Form::kRecurrent : Form::kBuffered;
    if (s.linear.form == Form::kBuffered) s.linear.buffer_length = static_cast<int>(pick(1, 8));
    if (pick(0, 1) == 0) s.speculation = random_speculation(pick);
    s.linear.drafts = s.speculation.most_drafts();
    s.replica.drafts = s.linear.drafts;
    if (s.linear.form == Form::kBuffered && s.linear.drafts > 0) {
        constexpr std::array kPolicies{"fixed_length", "aligned", "deferred", "deferred_under_load"};
        s.linear.flush.policy = kPolicies[static_cast<std::size_t>(pick(0, 3))];
        s.linear.flush.most_per_step = static_cast<int>(pick(0, 2));
        s.linear.ring = s.linear.buffer_length + static_cast<int>(pick(0, 8));
    }
    s.draft_records = pick(0, 1) == 0 ? DraftRecords::kWithin : DraftRecords::kBeside;
    s.replicas = pick(0, 2) == 0 ? static_cast<int>(pick(2, 3)) : 1;
    s.router = pick(0, 1) == 0 ? RouterRule::kRoundRobin : RouterRule::kLeastLoaded;
    s.seed = static_cast<std::uint64_t>(pick(0, 1'000));
    return s;
}

Scenario random_scenario(Picker& pick) {
    Scenario s;
    s.spec = random_spec(pick);
    const std::int64_t requests = pick(1, 30);
    const std::int64_t spread = pick(0, 3000);  // steps take 1 to 1000 ps: from bursts to idle spells
    const std::int64_t longest = pick(1, 30);
    Time now;
    for (std::int64_t i = 0; i < requests; ++i) {
        now += Time(pick(0, 3) == 0 ? 0 : pick(0, spread));  // equal stamps are common
        Arrival a{now, pick(1, longest), pick(0, 2) == 0 ? 1 : pick(1, longest), 0};
        if (pick(0, 2) == 0) a.declared_tokens = a.output_tokens + pick(0, 5);
        s.arrivals.push_back(a);
    }
    if (pick(0, 2) == 0) s.horizon = Time(pick(0, now.value() + 3000));
    return s;
}

RunResult run_engine(const Scenario& s) {
    const HashPricer pricer;
    ServeSpec spec = serve_spec(s.spec.replica, s.spec.linear, s.horizon);
    spec.replicas = s.spec.replicas;
    spec.router = s.spec.router;
    const std::int64_t page = s.spec.replica.pool.page_tokens;
    const auto& cache = s.spec.replica.prefix_cache;
    const std::int64_t interval = cache ? snapshot_interval(*cache, page) : 0;
    spec.make_rows = [&, page, interval]() -> std::unique_ptr<DecodeRows> {
        if (s.spec.linear.drafts == 0)
            return std::make_unique<CohortRows>(make_decode_form(s.spec.linear), page, interval);
        return make_sampled_rows({s.spec.speculation, s.spec.linear, s.spec.draft_records,
                                  static_cast<int>(page), s.spec.seed, &pricer, interval});
    };
    return serve_list(s.arrivals, spec, pricer);
}

auto key(const FinishedRequest& r) {
    return std::tuple(r.arrived, r.prompt_tokens, r.output_tokens, r.queue, r.ttft, r.e2e, r.interference,
                      r.preempted, r.flush);
}

bool same_requests(FinishedRequests a, FinishedRequests b) {
    const auto less = [](const FinishedRequest& x, const FinishedRequest& y) { return key(x) < key(y); };
    std::sort(a.begin(), a.end(), less);
    std::sort(b.begin(), b.end(), less);
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const FinishedRequest& x, const FinishedRequest& y) { return key(x) == key(y); });
}

// Time in the system is what the breakdown says, and no part of it is negative.
bool adds_up(const FinishedRequest& r) {
    const Time own = r.e2e - r.ttft - r.interference - r.preempted - r.flush;
    return r.queue >= Time() && r.ttft >= r.queue && r.interference >= Time() && r.preempted >= Time() &&
           r.flush >= Time() && own >= Time();
}

void compare(const RunResult& actual, const RunResult& expected) {
    CHECK(same_requests(actual.finished, expected.finished));
    CHECK(std::all_of(actual.finished.begin(), actual.finished.end(), adds_up));
    CHECK(actual.requests.completed == expected.requests.completed);
    CHECK(actual.requests.rejected == expected.requests.rejected);
    CHECK(actual.requests.unfinished == expected.requests.unfinished);
    CHECK(actual.preemptions == expected.preemptions);
    CHECK(actual.simulated == expected.simulated);
    CHECK(actual.busy == expected.busy);
    CHECK(actual.bytes == expected.bytes);
    CHECK(actual.steps == expected.steps);
    CHECK(actual.flushes == expected.flushes);
    CHECK(actual.generated_tokens == expected.generated_tokens);
    CHECK(actual.mean_batch == expected.mean_batch);
    CHECK(actual.prefix_cache == expected.prefix_cache);
    CHECK(actual.acceptance_length == expected.acceptance_length);
    CHECK(actual.itl_ms.count == expected.itl_ms.count);
    CHECK(actual.itl_ms.p50 == expected.itl_ms.p50);
    CHECK(actual.itl_ms.p99 == expected.itl_ms.p99);
    if (expected.itl_ms.mean) CHECK(*actual.itl_ms.mean == Approx(*expected.itl_ms.mean).epsilon(1e-12));
}

TEST_CASE("the engine equals the oracle to the picosecond and byte on 10,000 random scenarios") {
    Picker pick(2024);
    std::int64_t rejected = 0;
    std::int64_t unfinished = 0;
    std::int64_t flushes = 0;
    std::int64_t preemptions = 0;
    std::int64_t drafts_kept = 0;  // runs
    std::int64_t snapshots = 0;
    std::int64_t resumed = 0;  // after a preemption, from what they had left
    std::int64_t lost = 0;     // what others wanted the memory of
    for (int i = 0; i < 10'000; ++i) {
        const Scenario s = random_scenario(pick);
        const SchedulerSpec& scheduler = s.spec.replica.scheduler;
        INFO("scenario " << i << ", m " << s.spec.linear.buffer_length << ", " << s.spec.linear.drafts
                         << " drafts, " << s.spec.linear.flush.policy << ", " << s.spec.replicas
                         << " replicas, step " << s.spec.replica.step_tokens << ", "
                         << kStepRuleNames[static_cast<std::size_t>(scheduler.steps)] << ", "
                         << kAdmissionRuleNames[static_cast<std::size_t>(scheduler.admission)] << ", "
                         << kVictimRuleNames[static_cast<std::size_t>(scheduler.victim)]);
        const RunResult actual = run_engine(s);
        compare(actual, run_oracle(s.arrivals, s.spec, HashPricer(), s.horizon));
        rejected += actual.requests.rejected;
        unfinished += actual.requests.unfinished;
        flushes += actual.flushes;
        preemptions += actual.preemptions;
        drafts_kept += actual.acceptance_length.value_or(1.0) > 1.0 ? 1 : 0;
        if (!actual.prefix_cache) continue;
        snapshots += actual.prefix_cache->snapshots;
        resumed += actual.prefix_cache->hits;
        lost += actual.prefix_cache->evicted_snapshots;
    }
    // The scenarios reach what they are for.
    CHECK(rejected > 1000);
    CHECK(unfinished > 1000);
    CHECK(flushes > 1000);
    CHECK(preemptions > 1000);
    CHECK(drafts_kept > 1000);
    CHECK(snapshots > 1000);
    CHECK(resumed > 200);
    CHECK(lost > 200);
}

TEST_CASE("the same run repeats exactly") {
    Picker pick(5);
    for (int i = 0; i < 50; ++i) {
        const Scenario s = random_scenario(pick);
        const RunResult a = run_engine(s);
        const RunResult b = run_engine(s);
        CHECK(a.simulated == b.simulated);
        CHECK(a.itl_ms.mean == b.itl_ms.mean);
        CHECK(a.ttft_ms.mean == b.ttft_ms.mean);
        CHECK(a.bytes == b.bytes);
    }
}

}  // namespace
}  // namespace kvsim
