// Serving with a prefix cache: what is prefilled, copied, shared and found again, on scenarios that are
// worked out by hand, on random ones, and on a trace of conversations.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/random.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr Time kMs(1'000'000'000);
constexpr int kInterval = 4;
const LinearServing kRecurrent{Form::kRecurrent, 1, StateFormat::kFp32};

struct Prompt {
    Arrival arrival;
    std::vector<std::uint64_t> blocks{};  // of `block_tokens` tokens
};

class PromptSource final : public ArrivalSource {
  public:
    explicit PromptSource(std::vector<Prompt> prompts, std::int64_t block_tokens = kInterval)
        : prompts_(std::move(prompts)), block_tokens_(block_tokens) {}

    std::optional<Arrival> next() override {
        if (next_ == prompts_.size()) return std::nullopt;
        return prompts_[next_++].arrival;
    }
    void left(Time) override {}
    std::span<const std::uint64_t> blocks() const override { return prompts_[next_ - 1].blocks; }
    std::int64_t block_tokens() const override { return block_tokens_; }
    ArrivalCounts counts() const override { return {static_cast<std::int64_t>(prompts_.size())}; }

  private:
    std::vector<Prompt> prompts_;
    std::int64_t block_tokens_;
    std::size_t next_ = 0;
};

// As SGLang, with pages of one token.
ServeSpec cached(std::int64_t slots, std::int64_t tokens) {
    ReplicaSpec spec;
    spec.max_running = 100;
    spec.step_tokens = 100;
    spec.pool = split_pool(slots, tokens);
    spec.pool.slots_per_snapshot = 1;
    spec.prefix_cache = PrefixCacheSpec{.snapshot_tokens = kInterval};
    return serve_spec(spec, kRecurrent);
}

RunResult serve_prompts(std::vector<Prompt> prompts, const ServeSpec& spec, const StepPricer& pricer) {
    PromptSource source(std::move(prompts));
    return serve(spec, source, pricer);
}

FakePricer constant_step() {
    return FakePricer([](const StepShape&) { return kMs; });
}

TEST_CASE("tokens that are found are not prefilled, and a state is restored") {
    const FakePricer pricer = constant_step();
    const RunResult r = serve_prompts({{{Time(), 10, 2}, {1, 2, 3}}, {{kMs * 10, 11, 1}, {1, 2, 4}}},
                                      cached(100, 1000), pricer);
    REQUIRE(pricer.shapes().size() == 3);
    const StepShape& first = pricer.shapes()[0];
    CHECK(first.prefill.new_tokens == 10);
    CHECK(first.prefill.cached_tokens == 0);
    CHECK(first.state_copies == 1);  // to a snapshot after 8
    CHECK(pricer.shapes()[1].state_copies == 0);
    const StepShape& second = pricer.shapes()[2];
    CHECK(second.prefill.new_tokens == 3);
    CHECK(second.prefill.cached_tokens == 8);
    CHECK(second.prefill.query_key_pairs == 9 + 10 + 11);
    CHECK(second.logit_rows == 1);
    CHECK(second.state_copies == 1);  // from it; the prompt gets to no other multiple of 4
    REQUIRE(r.prefix_cache);
    CHECK(r.prefix_cache->asked_tokens == 21);
    CHECK(r.prefix_cache->hit_tokens == 8);
    CHECK(r.prefix_cache->hits == 1);
    CHECK(r.prefix_cache->snapshots == 1);
    CHECK(r.prefix_cache->evicted_pages == 0);
}

TEST_CASE("without a prefix cache nothing is found, copied or reported") {
    ServeSpec spec = cached(100, 1000);
    spec.replica.prefix_cache.reset();
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_prompts({{{Time(), 10, 1}, {1, 2, 3}}, {{kMs * 10, 10, 1}, {1, 2, 3}}}, spec, pricer);
    CHECK_FALSE(r.prefix_cache);
    REQUIRE(pricer.shapes().size() == 2);
    CHECK(pricer.shapes()[1].prefill.new_tokens == 10);
    CHECK(pricer.shapes()[1].state_copies == 0);
}

TEST_CASE("there is no hit without a snapshot, and one is taken where prompts part") {
    const FakePricer pricer = constant_step();
    const RunResult r = serve_prompts({{{Time(), 13, 1}, {1, 2, 3}},
                                       {{kMs * 10, 13, 1}, {1, 2, 9}},
                                       {{kMs * 20, 17, 1}, {1, 2, 5, 6}},
                                       {{kMs * 30, 12, 1}, {1, 2, 3}}},
                                      cached(100, 1000), pricer);
    REQUIRE(pricer.shapes().size() == 4);
    CHECK(pricer.shapes()[0].state_copies == 1);         // after 12
    CHECK(pricer.shapes()[1].prefill.new_tokens == 13);  // pages of 8 tokens are there, their state is not
    CHECK(pricer.shapes()[1].state_copies == 2);         // after 8 and 12
    CHECK(pricer.shapes()[2].prefill.new_tokens == 9);
    CHECK(pricer.shapes()[2].state_copies == 2);  // from 8, after 16
    // The whole prompt is there, but its last token must be computed: 8 of 12.
    CHECK(pricer.shapes()[3].prefill.new_tokens == 4);
    CHECK(pricer.shapes()[3].state_copies == 2);
    CHECK(r.prefix_cache->hit_tokens == 8 + 8);
    CHECK(r.prefix_cache->hits == 2);
    CHECK(r.prefix_cache->snapshots == 1 + 2 + 1 + 1);
}

TEST_CASE("a chunk within a prompt ends at a snapshot and has nothing after it in its step") {
    // Steps of 10 tokens. 23 tokens: chunks of 8, 8 and 7; the other prompt, of 2 tokens, joins the last one.
    ServeSpec spec = cached(100, 1000);
    spec.replica.step_tokens = 10;
    const FakePricer pricer = constant_step();
    serve_prompts({{{Time(), 23, 1}, {1, 2, 3, 4, 5, 6}}, {{Time(), 2, 1}, {7}}}, spec, pricer);
    REQUIRE(pricer.shapes().size() == 3);
    CHECK(pricer.shapes()[0].prefill.new_tokens == 8);
    CHECK(pricer.shapes()[0].prefill.sequences == 1);
    CHECK(pricer.shapes()[1].prefill.new_tokens == 8);
    CHECK(pricer.shapes()[2].prefill.new_tokens == 7 + 2);
    for (const StepShape& shape : pricer.shapes()) CHECK(shape.state_copies == 1);  // after 8, 16 and 20
}

TEST_CASE("an interval longer than a step takes several, the last of them what is left of it") {
    // 40 tokens by steps of 3, with a snapshot every 4: chunks of 3 and 1.
    ServeSpec spec = cached(100, 1000);
    spec.replica.step_tokens = 3;
    const FakePricer pricer = constant_step();
    const RunResult r = serve_prompts({{{Time(), 40, 1}, {1}}}, spec, pricer);
    CHECK(r.requests.completed == 1);
    CHECK(pricer.shapes().size() == 20);
}

TEST_CASE("a prompt is found while it is still being prefilled") {
    // Mixed steps of 9 tokens: chunks of 8. B comes when 8 of A's tokens are in the cache.
    ServeSpec spec = cached(100, 1000);
    spec.replica.step_tokens = 9;
    spec.replica.scheduler.steps = StepRule::kMixed;
    const FakePricer pricer = constant_step();
    serve_prompts({{{Time(), 12, 1}, {1, 2, 3}}, {{Time(), 9, 1}, {1, 2, 4}}}, spec, pricer);
    REQUIRE(pricer.shapes().size() == 2);
    CHECK(pricer.shapes()[0].prefill.sequences == 1);
    CHECK(pricer.shapes()[1].prefill.new_tokens == 4 + 1);
    CHECK(pricer.shapes()[1].prefill.cached_tokens == 8 + 8);
}

TEST_CASE("pages that are shared let more requests in") {
    // 16 tokens are cached. A and B share them: 16 + 5 + 5 of 26 pages, where each alone would take 21.
    const std::vector<std::uint64_t> common{1, 2, 3, 4};
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_prompts({{{Time(), 17, 1}, common}, {{kMs * 5, 17, 4}, common}, {{kMs * 5, 17, 4}, common}},
                      cached(100, 26), pricer);
    REQUIRE(pricer.shapes().size() == 1 + 1 + 3);
    CHECK(pricer.shapes()[1].prefill.sequences == 2);
    CHECK(pricer.shapes()[1].prefill.new_tokens == 2);
    CHECK(pricer.shapes()[2].decode.context_sum == 2 * 17);
    CHECK(r.prefix_cache->hit_tokens == 32);
    CHECK(r.prefix_cache->evicted_pages == 0);
}

TEST_CASE("a request that fits alone completes however full the cache is") {
    // 12 of 20 pages and one of 2 slots are cached; the second request wants all pages, with its answer.
    const FakePricer pricer = constant_step();
    const RunResult r = serve_prompts({{{Time(), 13, 1}, {1, 2, 3}}, {{kMs * 5, 16, 4}, {4, 5, 6, 7}}},
                                      cached(2, 20), pricer);
    CHECK(r.requests.completed == 2);
    CHECK(r.prefix_cache->evicted_pages == 12);
    CHECK(r.prefix_cache->evicted_snapshots == 1);
    CHECK(pricer.shapes().size() == 1 + 4);  // without a wait
}

TEST_CASE("snapshots take only slots that requests leave") {
    // 2 slots, two requests at once: no slot is left, so no snapshot is taken and nothing is found later.
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_prompts({{{Time(), 9, 1}, {1, 2}}, {{Time(), 9, 1}, {3, 4}}, {{kMs * 5, 9, 1}, {1, 2}}},
                      cached(2, 1000), pricer);
    REQUIRE(pricer.shapes().size() == 2);
    CHECK(pricer.shapes()[0].state_copies == 1);  // the first was alone when its chunk was formed
    CHECK(r.prefix_cache->evicted_snapshots == 1);
    CHECK(r.prefix_cache->hits == 0);
    // Of 4 slots two are set aside per request and one is used: there is room for both snapshots.
    ServeSpec spec = cached(4, 1000);
    spec.replica.pool.slots_per_request = 2;
    const RunResult roomy = serve_prompts(
        {{{Time(), 9, 1}, {1, 2}}, {{Time(), 9, 1}, {3, 4}}, {{kMs * 5, 9, 1}, {1, 2}}}, spec, pricer);
    CHECK(roomy.prefix_cache->evicted_snapshots == 0);
    CHECK(roomy.prefix_cache->hits == 1);
}

TEST_CASE("who was preempted finds its prompt again") {
    // 20 pages, as vLLM. A: 9 + 4 tokens, B: 9 + 6. Both are prefilled (18) and decode once (20). B gives way
    // with 2 tokens, 8 pages of its prompt stay in the cache, and A ends with 12. Then B's 9 + 2 tokens are
    // prefilled again, 8 of them from the cache.
    ServeSpec spec = cached(100, 20);
    spec.replica.scheduler.steps = StepRule::kMixed;
    spec.replica.scheduler.admission = AdmissionRule::kPrompt;
    spec.replica.scheduler.victim = VictimRule::kLastAdmitted;
    const FakePricer pricer = constant_step();
    const RunResult r = serve_prompts({{{Time(), 9, 4}, {1, 2}}, {{Time(), 9, 6}, {3, 4}}}, spec, pricer);
    CHECK(r.preemptions == 1);
    CHECK(r.prefix_cache->asked_tokens == 9 + 9 + 11);
    CHECK(r.prefix_cache->hit_tokens == 8);
    // Beside A's prompt in the cache there is room for 12 of B's 14 pages.
    CHECK(r.prefix_cache->evicted_pages == 8);
    REQUIRE(pricer.shapes().size() == 4 + 1 + 3);
    CHECK(pricer.shapes()[4].prefill.new_tokens == 3);
    CHECK(pricer.shapes()[4].prefill.cached_tokens == 8);
}

TEST_CASE("each replica has a cache of its own") {
    ServeSpec spec = cached(100, 1000);
    spec.replicas = 2;  // in turn
    std::vector<Prompt> prompts;
    for (int i = 0; i < 4; ++i) prompts.push_back({{kMs * (10 * i), 9, 1}, {1, 2}});
    const RunResult r = serve_prompts(prompts, spec, constant_step());
    CHECK(r.prefix_cache->asked_tokens == 36);
    CHECK(r.prefix_cache->hit_tokens == 16);
}

TEST_CASE("prompts without hashes pay for snapshots and find nothing") {
    const FakePricer pricer = constant_step();
    const RunResult r = serve_list({{Time(), 10, 1}, {kMs * 5, 10, 1}}, cached(100, 1000), pricer);
    CHECK(r.prefix_cache->snapshots == 2);
    CHECK(r.prefix_cache->hit_tokens == 0);
    CHECK(r.prefix_cache->evicted_snapshots == 0);
}

// ---- random scenarios: the invariants of the replica hold in every one of them ----

struct Sums {
    std::int64_t prefilled = 0;
    std::int64_t copies = 0;
};

Sums sums_of(const FakePricer& pricer) {
    Sums sums;
    for (const StepShape& shape : pricer.shapes()) {
        sums.prefilled += shape.prefill.new_tokens;
        sums.copies += shape.state_copies;
    }
    return sums;
}

TEST_CASE("random prompts with common beginnings, in little memory, under every rule") {
    RandomStream random(7, "prefix serving");
    const auto draw = [&](std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(high - low + 1));
    };
    std::int64_t hits = 0, evicted = 0, preemptions = 0;
    for (int scenario = 0; scenario < 600; ++scenario) {
        const std::int64_t page = scenario % 3 == 0 ? draw(2, 6) : 1;
        ServeSpec spec = cached(draw(2, 12), draw(5, 20) * 6);
        spec.replica.step_tokens = draw(1, 30);
        spec.replica.pool.page_tokens = page;
        spec.replica.pool.units /= page;
        spec.replica.scheduler.steps = static_cast<StepRule>(draw(0, 1));
        spec.replica.scheduler.order = static_cast<QueueOrder>(draw(0, 1));
        spec.replica.scheduler.victim = static_cast<VictimRule>(draw(0, 1));
        spec.replica.scheduler.admission = static_cast<AdmissionRule>(draw(0, 2));
        if (scenario % 4 == 1) {  // one pool: of every unit for anything
            spec.replica.pool.slots_per_request = 0;
            spec.replica.pool.slots_per_snapshot = 0;
            spec.replica.pool.units_per_request = 3;
            spec.replica.pool.units_per_snapshot = 2;
        }
        spec.make_rows = [page] {
            return std::make_unique<CohortRows>(make_decode_form({Form::kBuffered, 3, StateFormat::kFp32}),
                                                page,
                                                snapshot_interval({.snapshot_tokens = kInterval}, page));
        };
        std::vector<Prompt> prompts;
        Time now;
        for (std::int64_t i = draw(1, 40); i > 0; --i) {
            now += kMs * draw(0, 8);
            Prompt prompt{{now, draw(1, 24), draw(1, 10)}};
            for (std::int64_t b = 0; b * kInterval < prompt.arrival.prompt_tokens; ++b)
                prompt.blocks.push_back(static_cast<std::uint64_t>(draw(0, 1)));
            prompts.push_back(prompt);
        }
        const auto count = static_cast<std::int64_t>(prompts.size());
        const FakePricer pricer = constant_step();
        const RunResult r = serve_prompts(prompts, spec, pricer);
        CHECK(r.requests.completed + r.requests.rejected == count);
        const Sums sums = sums_of(pricer);
        const PrefixCounts& c = *r.prefix_cache;
        CHECK(sums.copies == c.hits + c.snapshots);
        // Whoever is preempted within its prefill has computed less than it asked for.
        CHECK(sums.prefilled + c.hit_tokens <= c.asked_tokens);
        if (r.preemptions == 0) CHECK(sums.prefilled + c.hit_tokens == c.asked_tokens);
        hits += c.hits;
        evicted += c.evicted_pages;
        preemptions += r.preemptions;
    }
    CHECK(hits > 1000);
    CHECK(evicted > 1000);
    CHECK(preemptions > 100);
}

// ---- a trace of conversations ----

constexpr std::int64_t kTraceBlock = 512;
constexpr std::int64_t kTraceInterval = 256;

std::vector<Prompt> mooncake() {
    const std::string path = KVSIM_SOURCE_DIR "/../shared/traces/mooncake/conversation_trace.jsonl";
    if (!std::filesystem::exists(path)) {
        std::cerr << "SKIPPED: prefix cache on the Mooncake trace: no " << path << "\n";
        return {};
    }
    const std::unique_ptr<ArrivalSource> source = make_arrivals(TraceWorkload{path}, 1);
    REQUIRE(source->block_tokens() == kTraceBlock);
    std::vector<Prompt> prompts;
    while (const std::optional<Arrival> arrival = source->next()) {
        const std::span<const std::uint64_t> blocks = source->blocks();
        prompts.push_back({*arrival, {blocks.begin(), blocks.end()}});
        prompts.back().arrival.output_tokens = 1;  // answers are in no hash
        prompts.back().arrival.declared_tokens = 1;
    }
    return prompts;
}

// Tokens of whole blocks at the beginning that any earlier prompt had, all but the last of the prompt: more
// than that no cache of prompts can find.
std::int64_t seen_before(const Prompt& prompt, const std::set<std::uint64_t>& seen) {
    std::int64_t tokens = 0;
    for (const std::uint64_t block : prompt.blocks) {
        if (seen.count(block) == 0) break;
        tokens += kTraceBlock;
    }
    return std::min(tokens, prompt.arrival.prompt_tokens - 1);
}

// One request at a time, chunks of `step_tokens`, boundless memory. Hashes of this trace stand for all that
// comes before their block, so that (hash, tokens) names a prefix.
class PlainCache {
  public:
    explicit PlainCache(std::int64_t step_tokens) : step_tokens_(step_tokens) {}

    std::int64_t serve(const Prompt& prompt) {
        const std::int64_t tokens = prompt.arrival.prompt_tokens;
        std::int64_t hit = 0, known = 0;
        for (std::int64_t end = kTraceInterval; end < tokens && pages_.count(at(prompt, end)) > 0;
             end += kTraceInterval) {
            known = end;
            if (states_.count(at(prompt, end)) > 0) hit = end;
        }
        std::int64_t last = 0;
        for (std::int64_t begin = hit; begin < tokens;) {
            std::int64_t end = std::min(begin + step_tokens_, tokens);
            last = end / kTraceInterval * kTraceInterval;
            if (end < tokens) end = last;
            if (last > begin) states_.insert(at(prompt, last));
            if (begin < known && known < last) states_.insert(at(prompt, known));
            begin = end;
        }
        for (std::int64_t end = kTraceInterval; end <= last; end += kTraceInterval)
            pages_.insert(at(prompt, end));
        return hit;
    }

  private:
    using Prefix = std::pair<std::uint64_t, std::int64_t>;
    static Prefix at(const Prompt& prompt, std::int64_t tokens) {
        return {prompt.blocks[static_cast<std::size_t>((tokens - 1) / kTraceBlock)], tokens};
    }

    std::int64_t step_tokens_;
    std::set<Prefix> pages_, states_;
};

TEST_CASE("hits on the Mooncake trace: exact in boundless memory, below what was ever seen in any") {
    const std::vector<Prompt> prompts = mooncake();
    if (prompts.empty()) return;
    constexpr std::int64_t kStepTokens = 8192;
    std::int64_t asked = 0, bound = 0, expected = 0;
    std::set<std::uint64_t> seen;
    PlainCache plain(kStepTokens);
    for (const Prompt& prompt : prompts) {
        asked += prompt.arrival.prompt_tokens;
        bound += seen_before(prompt, seen);
        expected += plain.serve(prompt);
        seen.insert(prompt.blocks.begin(), prompt.blocks.end());
    }
    const auto run = [&](std::int64_t running, std::int64_t slots, std::int64_t tokens) {
        ReplicaSpec spec;
        spec.max_running = running;
        spec.step_tokens = kStepTokens;
        spec.pool = split_pool(slots, tokens);
        spec.pool.slots_per_snapshot = 1;
        spec.prefix_cache = PrefixCacheSpec{.snapshot_tokens = kTraceInterval};
        PromptSource source(prompts, kTraceBlock);
        const RunResult r =
            serve(serve_spec(spec, kRecurrent), source, FakePricer([](const StepShape&) { return kMs; }));
        CHECK(r.requests.completed == static_cast<std::int64_t>(prompts.size()));
        CHECK(r.prefix_cache->asked_tokens == asked);
        return *r.prefix_cache;
    };
    const PrefixCounts all = run(1, 1'000'000, 1'000'000'000);
    CHECK(all.evicted_pages == 0);
    CHECK(all.hit_tokens == expected);
    CHECK(all.hit_tokens <= bound);
    const PrefixCounts some = run(16, 600, 3'000'000);
    CHECK(some.hit_tokens < all.hit_tokens);
    CHECK(some.hit_tokens > 0);
    CHECK(some.evicted_pages > 0);
    CHECK(some.evicted_snapshots > 0);
    const PrefixCounts few = run(16, 100, 500'000);
    CHECK(few.hit_tokens < some.hit_tokens);
}

}  // namespace
}  // namespace kvsim
