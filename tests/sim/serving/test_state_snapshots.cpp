// Snapshots that rows leave in decode: when they give way, and with drafts at a multiple of the interval.
// Worked out by hand.
#include <vector>

#include "sim/serving/sampled_rows.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr Time kMs(1'000'000'000);
const LinearServing kBuffered{Form::kBuffered, 8, StateFormat::kFp32};
const LinearServing kRecurrent{Form::kRecurrent, 1, StateFormat::kFp32};
// Two prompts of 4 tokens; answers of 5 and 10.
const std::vector<Arrival> kTwo{{Time(), 4, 5, 0}, {Time(), 4, 10, 0}};

FakePricer constant_step() {
    return FakePricer([](const StepShape&) { return kMs; });
}

// The last to come gives way. No snapshots but at a preemption.
ServeSpec little_memory(std::int64_t tokens, bool at_preemption, const LinearServing& linear) {
    ReplicaSpec spec;
    spec.max_running = 10;
    spec.step_tokens = 100;
    spec.pool = split_pool(10, tokens);
    spec.pool.slots_per_snapshot = 1;
    spec.scheduler.admission = AdmissionRule::kPrompt;
    spec.scheduler.victim = VictimRule::kLastAdmitted;
    spec.prefix_cache = PrefixCacheSpec{1000, 1, at_preemption};
    return serve_spec(spec, linear);
}

// Both are prefilled in step 0 and decode in steps 1 to 3, after which they have 7 tokens each in the cache
// and 3 records. Step 4 wants 16 pages of one token.
TEST_CASE("a request that gives way flushes, leaves its state and goes on from there") {
    const FakePricer pricer = constant_step();
    const RunResult r = serve_list(kTwo, little_memory(15, true, kBuffered), pricer);
    CHECK(r.preemptions == 1);
    REQUIRE(pricer.shapes().size() == 11);
    const StepShape& preempting = pricer.shapes()[4];
    CHECK(preempting.decode.sequences == 1);
    CHECK(preempting.folds.states == 1);
    CHECK(preempting.folds.records == 3);
    CHECK(preempting.state_copies == 1);
    CHECK(preempting[Form::kBuffered].flushes == 0);
    // The other one has finished. All is there but the last token, which was never an input.
    const StepShape& resumed = pricer.shapes()[5];
    CHECK(resumed.prefill.new_tokens == 1);
    CHECK(resumed.prefill.cached_tokens == 7);
    CHECK(resumed.prefill.query_key_pairs == 8);
    CHECK(resumed.state_copies == 1);
    CHECK(pricer.shapes()[6][Form::kBuffered].buffered_tokens == 0);
    CHECK(pricer.shapes()[6].decode.context_sum == 8);
    CHECK(r.flushes == 1);
    REQUIRE(r.prefix_cache);
    CHECK(r.prefix_cache->asked_tokens == 4 + 4 + 8);
    CHECK(r.prefix_cache->hit_tokens == 7);
    CHECK(r.prefix_cache->snapshots == 1);
    CHECK(r.prefix_cache->evicted_snapshots == 0);
}

TEST_CASE("a state without a buffer is copied as it is") {
    const FakePricer pricer = constant_step();
    serve_list(kTwo, little_memory(15, true, kRecurrent), pricer);
    CHECK(pricer.shapes()[4].folds.states == 0);
    CHECK(pricer.shapes()[4].state_copies == 1);
    CHECK(pricer.shapes()[5].prefill.new_tokens == 1);
}

TEST_CASE("nothing is left at a preemption where it is not asked for, or finds no room") {
    // 15 pages: 7 of the victim, and 8 of the other's next step. 14 are too few.
    for (const auto& [tokens, at_preemption] : {std::pair{15, false}, {14, true}}) {
        const FakePricer pricer = constant_step();
        const RunResult r = serve_list(kTwo, little_memory(tokens, at_preemption, kBuffered), pricer);
        CHECK(r.preemptions == 1);
        CHECK(pricer.shapes()[4].folds.states == 0);
        CHECK(pricer.shapes()[4].state_copies == 0);
        CHECK(pricer.shapes()[5].prefill.new_tokens == 8);
        CHECK(r.prefix_cache->snapshots == 0);
        CHECK(r.prefix_cache->hits == 0);
    }
}

TEST_CASE("what a victim has left goes when those who run want its memory") {
    // The first one goes on for a step more: its 9 tokens and 7 left ones do not fit 15 pages.
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_list({{Time(), 4, 6, 0}, {Time(), 4, 10, 0}}, little_memory(15, true, kBuffered), pricer);
    CHECK(pricer.shapes()[4].folds.states == 1);
    CHECK(pricer.shapes()[6].prefill.new_tokens == 8);
    CHECK(r.prefix_cache->hits == 0);
    CHECK(r.prefix_cache->evicted_snapshots == 1);
    CHECK(r.prefix_cache->evicted_pages == 7);
}

// ---- with drafts ----

TEST_CASE("with drafts the step after a multiple of the interval flushes and copies") {
    // All of 3 drafts are kept, beside a buffer of 8: without snapshots a row flushes from 5 records on.
    SampledRowsParts parts;
    parts.speculation = {.policy = "static", .drafts = 3, .acceptance = {.rates = {1.0}}};
    parts.linear = {.form = Form::kBuffered, .buffer_length = 8, .drafts = 3};
    parts.draft_records = DraftRecords::kBeside;
    const FakePricer pricer = constant_step();
    parts.pricer = &pricer;
    struct Expected {
        std::int64_t copies, records, flushed;
    };
    const auto check = [&](std::int64_t interval, const std::vector<Expected>& steps) {
        parts.snapshot_interval = interval;
        const auto rows = make_sampled_rows(parts);
        rows->join({.slot = 0, .context = 5, .remaining = 1000});
        std::vector<TokenGap> gaps;
        std::vector<Slot> finished;
        for (const Expected& expected : steps) {
            StepShape shape;
            rows->form_step(shape, {});
            rows->end_step(kMs, gaps, finished);
            CHECK(shape.state_copies == expected.copies);
            CHECK(shape[Form::kVerifyBuffered].buffered_tokens == expected.records);
            CHECK(shape[Form::kVerifyBuffered].flushes == (expected.flushed > 0 ? 1 : 0));
            CHECK(shape[Form::kVerifyBuffered].flushed_tokens == expected.flushed);
        }
    };
    // Tokens in the cache before each step: 5, 9, 13, 17, 21.
    check(0, {{0, 0, 0}, {0, 4, 0}, {0, 8, 8}, {0, 4, 0}, {0, 8, 8}});
    check(8, {{0, 0, 0}, {1, 4, 4}, {0, 4, 0}, {1, 8, 8}, {0, 4, 0}});  // after 8 and 16
    check(2, {{0, 0, 0}, {1, 4, 4}, {1, 4, 4}, {1, 4, 4}, {1, 4, 4}});  // one, however many it passes

    parts.linear = {.form = Form::kRecurrent, .drafts = 3};
    check(8, {{0, 0, 0}, {1, 0, 0}, {0, 0, 0}, {1, 0, 0}, {0, 0, 0}});
}

}  // namespace
}  // namespace kvsim
