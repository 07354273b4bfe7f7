// A thousand random scenarios: little memory, every pair of policies, requests that can never fit, answers of
// one token, nothing at all to serve. Every run checks the invariants of sim/README.md, the watchdog among
// them.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <tuple>

#include "sim/base/random.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/memory/prefix_cache.hpp"
#include "sim/model/parameters.hpp"
#include "sim/policies/speculation.hpp"
#include "sim/serving/length_times.hpp"
#include "sim/serving/sampled_rows.hpp"
#include "tests/sim/memory/support.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// What a scenario chooses, and among how many.
enum Factor : std::size_t {
    kSteps,
    kOrder,
    kAdmission,
    kVictim,
    kFlush,
    kForm,
    kLength,
    kSpeculation,
    kPools,
    kRecords,
    kReplicas,
    kRouter,
    kLoad,
    kCache,
    kFactorCount
};
constexpr std::array<int, kFactorCount> kLevels{2, 2, 3, 2, 5, 3, 2, 4, 3, 2, 3, 2, 4, 3};
using Choice = std::array<int, kFactorCount>;

enum Cache { kWithout, kWith, kAtPreemption };       // of kCache
enum Load { kBurst, kSpread, kOneToken, kNothing };  // of kLoad
constexpr int kRecurrentForm = 0;                    // of kForm; then buffered, auto

// Rows that speculate have no phases to stagger, and a form and a length that are given. The recurrent form
// has no buffer.
bool possible(const Choice& c) {
    if (c[kForm] == kRecurrentForm && (c[kFlush] != 0 || c[kLength] != 0)) return false;
    if (c[kSpeculation] == 0) return true;
    return flush_policies()[static_cast<std::size_t>(c[kFlush])].name != "staggered" && c[kLength] == 0 &&
           c[kForm] <= 1;
}

class Picker {
  public:
    explicit Picker(std::uint64_t seed) : random_(seed, "scenarios") {}
    std::int64_t operator()(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random_.bits() % static_cast<std::uint64_t>(high - low + 1));
    }
    Choice choice() {
        Choice c{};
        do {
            for (std::size_t f = 0; f < kFactorCount; ++f)
                c[f] = static_cast<int>((*this)(0, kLevels[f] - 1));
        } while (!possible(c));
        return c;
    }

  private:
    RandomStream random_;
};

LinearServing linear_serving(const Choice& c, Picker& pick) {
    LinearServing linear;
    if (c[kForm] == kRecurrentForm) return linear;
    linear.form = Form::kBuffered;
    linear.choose_form = c[kForm] == 2;
    linear.choose_length = c[kLength] == 1;
    linear.buffer_length = static_cast<int>(pick(2, 12));
    linear.flush.policy = flush_policies()[static_cast<std::size_t>(c[kFlush])].name;
    linear.ring = linear.buffer_length + static_cast<int>(pick(0, 6));
    if (linear.choose_length) linear.buffer_length = linear.ring;
    return linear;
}

SpeculationSpec speculation(const Choice& c, Picker& pick) {
    SpeculationSpec s;
    s.policy = speculation_policies()[static_cast<std::size_t>(c[kSpeculation])].name;
    const auto drafts = [&] { return static_cast<int>(pick(1, 5)); };
    if (s.policy == "none") return s;
    if (s.policy == "table") {
        s.table = {{1, drafts()}, {3, drafts()}, {5, 0}};
    } else {
        s.drafts = drafts();
    }
    s.acceptance.rates = {static_cast<double>(pick(0, 10)) / 10.0};
    return s;
}

MemoryPools memory_pools(const Choice& c, Picker& pick) {
    const auto page = static_cast<int>(pick(1, 8));
    if (c[kPools] == 0) {
        SplitPools pools;
        pools.state_ratio = static_cast<double>(pick(2, 40)) / 10.0;
        pools.slots_per_request = static_cast<int>(pick(1, 3));
        pools.page_tokens = page;
        return pools;
    }
    if (c[kPools] == 1) return PagedPool{.page_tokens = page, .aligned_prefix_cache = c[kCache] != kWithout};
    return BytePool{};
}

std::vector<Arrival> arrivals(const Choice& c, Picker& pick) {
    std::vector<Arrival> list;
    if (c[kLoad] == kNothing) return list;
    Time now;
    const std::int64_t requests = pick(1, 40);
    for (std::int64_t i = 0; i < requests; ++i) {
        now += Time(c[kLoad] == kSpread ? pick(0, 4'000) : pick(0, 20));  // steps take up to 1000 ps
        Arrival a{now, pick(1, 40), c[kLoad] == kOneToken ? 1 : pick(1, 150), 0};
        if (pick(0, 9) == 0) a.prompt_tokens = 5'000;  // longer than any pool
        if (pick(0, 2) == 0) a.declared_tokens = a.output_tokens + pick(0, 20);
        list.push_back(a);
    }
    return list;
}

// Prompts whose first tokens are those of others, at times.
class BlockSource final : public ArrivalSource {
  public:
    BlockSource(const std::vector<Arrival>& arrivals, std::int64_t block_tokens, std::uint64_t seed)
        : list_(arrivals), block_tokens_(block_tokens), random_(seed, "blocks") {}

    std::optional<Arrival> next() override {
        const std::optional<Arrival> arrival = list_.next();
        blocks_.clear();
        if (!arrival) return arrival;
        const std::uint64_t stem = random_.bits() % 3;
        const std::uint64_t shared = random_.bits() % 8;
        const std::int64_t count = (arrival->prompt_tokens + block_tokens_ - 1) / block_tokens_;
        for (std::uint64_t b = 0; b < static_cast<std::uint64_t>(count); ++b)
            blocks_.push_back(b < shared ? stem * 100 + b : random_.bits());
        return arrival;
    }
    void left(Time now) override { list_.left(now); }
    std::span<const std::uint64_t> blocks() const override { return blocks_; }
    std::int64_t block_tokens() const override { return block_tokens_; }
    ArrivalCounts counts() const override { return list_.counts(); }

  private:
    ListSource list_;
    std::int64_t block_tokens_;
    RandomStream random_;
    std::vector<std::uint64_t> blocks_;
};

struct Scenario {
    Choice choice{};
    LinearServing linear;
    SpeculationSpec speculation;
    EngineMemory memory;
    ServeSpec serve;
    std::vector<Arrival> arrivals;
    std::int64_t block_tokens = 1;
};

// Memory for up to ten requests beside the weights, or for none.
Capacity little_memory(const Scenario& s, Picker& pick) {
    const ModelSpec model = [] {
        ModelSpec m = testing::tiny_model();
        m.mtp_pattern.assign(1, 'F');
        return m;
    }();
    EngineSpec engine;
    engine.max_running_requests = static_cast<int>(pick(1, 8));
    engine.memory = s.memory;
    std::int64_t weights = weight_bytes(model).value();
    if (s.linear.drafts > 0) weights += model_weights(model).mtp.bytes.value();
    const std::int64_t left = pick(1, 20 * testing::kTinySlot * (1 + s.linear.drafts));
    return solve_capacity(model, testing::device_with(weights + left), engine, s.linear, 1);
}

Scenario scenario(Picker& pick) {
    Scenario s;
    s.choice = pick.choice();
    const Choice& c = s.choice;
    s.linear = linear_serving(c, pick);
    s.speculation = speculation(c, pick);
    s.linear.drafts = s.speculation.most_drafts();
    s.memory.pools = memory_pools(c, pick);
    s.memory.draft_records = static_cast<DraftRecords>(c[kRecords]);
    const Capacity capacity = little_memory(s, pick);
    ReplicaSpec& replica = s.serve.replica;
    replica.max_running = capacity.max_running;
    replica.step_tokens = pick(1, 64);
    replica.drafts = s.linear.drafts;
    replica.pool = pool_size(capacity, s.memory.pools);
    replica.scheduler.steps = static_cast<StepRule>(c[kSteps]);
    replica.scheduler.order = static_cast<QueueOrder>(c[kOrder]);
    replica.scheduler.admission = static_cast<AdmissionRule>(c[kAdmission]);
    replica.scheduler.victim = static_cast<VictimRule>(c[kVictim]);
    if (c[kCache] != kWithout)
        replica.prefix_cache = {static_cast<int>(pick(1, 24)), 1, c[kCache] == kAtPreemption};
    s.block_tokens = pick(1, 8);
    s.serve.replicas = 1 + c[kReplicas];
    s.serve.router = static_cast<RouterRule>(c[kRouter]);
    s.arrivals = arrivals(c, pick);
    if (pick(0, 4) == 0) s.serve.horizon = Time(pick(0, 40'000));
    return s;
}

RunResult run(Scenario s) {
    const HashPricer pricer;
    const PricedLengths lengths(pricer);
    const std::int64_t page = s.serve.replica.pool.page_tokens;
    s.serve.make_rows = [&]() -> std::unique_ptr<DecodeRows> {
        const std::optional<PrefixCacheSpec>& cache = s.serve.replica.prefix_cache;
        const std::int64_t interval = cache ? snapshot_interval(*cache, page) : 0;
        if (s.linear.drafts == 0)
            return std::make_unique<CohortRows>(make_decode_form(s.linear, &lengths), page, interval);
        return make_sampled_rows(
            {s.speculation, s.linear, s.memory.draft_records, static_cast<int>(page), 1, &pricer, interval});
    };
    BlockSource source(s.arrivals, s.block_tokens, 1);
    return serve(s.serve, source, pricer);
}

void check(const Scenario& s, const RunResult& r) {
    const bool whole = !s.serve.horizon;
    CHECK(r.requests.read == static_cast<std::int64_t>(s.arrivals.size()));
    CHECK(r.requests.read == r.requests.completed + r.requests.rejected + r.requests.unfinished);
    CHECK((!whole || r.requests.unfinished == 0));
    const MemoryPool pool(s.serve.replica.pool);
    std::int64_t fit = 0;
    std::int64_t tokens = 0;
    for (const Arrival& a : s.arrivals) {
        const std::int64_t declared = std::max(a.declared_tokens, a.output_tokens);
        const bool fits =
            !pool.refuses(a.prompt_tokens + declared + s.linear.drafts) && s.serve.replica.max_running >= 1;
        fit += fits ? 1 : 0;
        tokens += fits ? a.output_tokens : 0;
    }
    if (whole) {
        CHECK(r.requests.completed == fit);
        CHECK(r.generated_tokens == tokens);
        CHECK((r.steps > 0) == (fit > 0));
    }
    if (s.choice[kLoad] == kOneToken) CHECK(r.one_token_outputs == r.requests.completed);
    if (s.serve.replica.scheduler.admission == AdmissionRule::kDeclared) CHECK(r.preemptions == 0);
}

using Pair = std::tuple<std::size_t, int, std::size_t, int>;

template <class Use>
void for_pairs(Use use) {
    for (std::size_t f = 0; f < kFactorCount; ++f) {
        for (std::size_t g = f + 1; g < kFactorCount; ++g) use(f, g);
    }
}

// Pairs of choices that some scenario can make.
std::set<Pair> possible_pairs() {
    std::set<Pair> pairs;
    for_pairs([&](std::size_t f, std::size_t g) {
        for (int a = 0; a < kLevels[f]; ++a) {
            for (int b = 0; b < kLevels[g]; ++b) {
                for (const int form : {0, 1, 2}) {  // the others as they exclude nothing
                    Choice c{};
                    c[kForm] = form;
                    c[f] = a;
                    c[g] = b;
                    if (possible(c)) pairs.insert({f, a, g, b});
                }
            }
        }
    });
    return pairs;
}

TEST_CASE("a thousand random scenarios keep every invariant, and every pair of policies is among them") {
    Picker pick(7);
    std::set<Pair> missing = possible_pairs();
    std::int64_t rejected = 0;
    std::int64_t preempted = 0;
    std::int64_t completed = 0;
    std::int64_t hits = 0;
    for (int i = 0; i < 1'000; ++i) {
        const Scenario s = scenario(pick);
        std::string choices;
        for (const int level : s.choice) choices += std::to_string(level);
        INFO("scenario " << i << ": choices " << choices);
        RunResult r;
        REQUIRE_NOTHROW(r = run(s));
        check(s, r);
        rejected += r.requests.rejected;
        preempted += r.preemptions;
        completed += r.requests.completed;
        hits += r.prefix_cache ? r.prefix_cache->hits : 0;
        for_pairs([&](std::size_t f, std::size_t g) { missing.erase({f, s.choice[f], g, s.choice[g]}); });
    }
    CHECK(missing.empty());
    CHECK(rejected > 1'000);
    CHECK(preempted > 200);
    CHECK(completed > 5'000);
    CHECK(hits > 200);
}

}  // namespace
}  // namespace kvsim
