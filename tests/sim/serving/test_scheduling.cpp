// Mixed steps, preemption, orders, admission rules and routers, on scenarios that are worked out by hand.
#include "sim/serving/admission.hpp"
#include "sim/serving/router.hpp"
#include "sim/serving/sampled_rows.hpp"
#include "sim/serving/victim.hpp"
#include "sim/serving/waiting_queue.hpp"
#include "tests/sim/serving/fake_pricer.hpp"
#include "tests/sim/serving/list_source.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr Time kMs(1'000'000'000);

FakePricer constant_step() {
    return FakePricer([](const StepShape&) { return kMs; });
}

const LinearServing kRecurrent{Form::kRecurrent, 1, StateFormat::kFp32};

ReplicaSpec replica_of(StepRule steps, AdmissionRule admission, VictimRule victim, std::int64_t tokens) {
    ReplicaSpec spec;
    spec.max_running = 100;
    spec.step_tokens = 100;
    spec.pool = split_pool(100, tokens);
    spec.scheduler.steps = steps;
    spec.scheduler.admission = admission;
    spec.scheduler.victim = victim;
    return spec;
}

// As vLLM.
ReplicaSpec mixed(std::int64_t tokens) {
    return replica_of(StepRule::kMixed, AdmissionRule::kPrompt, VictimRule::kLastAdmitted, tokens);
}

FinishedRequest of_output(const RunResult& result, std::uint32_t output_tokens) {
    for (const FinishedRequest& r : result.finished) {
        if (r.output_tokens == output_tokens) return r;
    }
    FAIL("no request with an answer of " << output_tokens);
    return {};
}

// One prompt of 10 tokens in chunks of 4, then one that joins while the first decodes.
TEST_CASE("with drafts prompts pass through the MTP module; mixed steps draft for those that end") {
    for (const StepRule steps : {StepRule::kPrefillFirst, StepRule::kMixed}) {
        SampledRowsParts parts;
        parts.speculation = {.policy = "static", .drafts = 3, .acceptance = {.rates = {0.0}}};
        parts.linear = {.form = Form::kRecurrent, .drafts = 3};
        const FakePricer pricer = constant_step();
        parts.pricer = &pricer;
        ReplicaSpec spec = replica_of(steps, AdmissionRule::kDeclared, VictimRule::kLastAdmitted, 1000);
        spec.step_tokens = 8;
        spec.drafts = 3;
        ServeSpec serve = serve_spec(spec, kRecurrent);
        serve.make_rows = [&] { return make_sampled_rows(parts); };
        serve_list({{Time(), 10, 4}, {kMs * 2, 3, 1}}, serve, pricer);
        const auto& shapes = pricer.shapes();
        REQUIRE(shapes.size() >= 3);
        for (const StepShape& shape : shapes) CHECK(shape.drafts == 3);
        CHECK(shapes[0].prefill.new_tokens == 8);
        CHECK(shapes[0].fresh.sequences == 0);
        const bool mixed = steps == StepRule::kMixed;
        CHECK(shapes[1].prefill.new_tokens == 2);
        CHECK(shapes[1].fresh.sequences == (mixed ? 1 : 0));
        CHECK(shapes[1].fresh.context_sum == (mixed ? 10 : 0));
        CHECK(shapes[2].prefill.new_tokens == 3);
        CHECK(shapes[2].decode.sequences == (mixed ? 1 : 0));
        CHECK(shapes[2].fresh.context_max == (mixed ? 3 : 0));
    }
}

TEST_CASE("a mixed step decodes every row and fills up its tokens with prefill") {
    // Steps of 4 tokens. A: 2 + 3 tokens, B: 5 + 1. A's prompt and 2 of B's; A's second token and B's other
    // 3; A's third.
    ReplicaSpec spec = mixed(1000);
    spec.step_tokens = 4;
    const FakePricer pricer = constant_step();
    const RunResult r = serve_list({{Time(), 2, 3}, {Time(), 5, 1}}, serve_spec(spec, kRecurrent), pricer);
    REQUIRE(pricer.shapes().size() == 3);
    const StepShape& first = pricer.shapes()[0];
    CHECK(first.prefill.sequences == 2);
    CHECK(first.prefill.new_tokens == 4);
    CHECK(first.decode.sequences == 0);
    CHECK(first.logit_rows == 1);
    const StepShape& second = pricer.shapes()[1];
    CHECK(second.prefill.sequences == 1);
    CHECK(second.prefill.new_tokens == 3);
    CHECK(second.prefill.cached_tokens == 2);
    CHECK(second.prefill.query_key_pairs == 3 + 4 + 5);
    CHECK(second[Form::kRecurrent].sequences == 1);
    CHECK(second.decode.context_sum == 2);
    CHECK(second.logit_rows == 2);
    CHECK(pricer.shapes()[2].prefill.sequences == 0);
    // Three of the second step's four tokens were B's.
    CHECK(of_output(r, 3).interference == Time(kMs.value() * 3 / 4));
    CHECK(of_output(r, 3).e2e == kMs * 3);
    CHECK(of_output(r, 1).ttft == kMs * 2);
}

TEST_CASE("who is preempted keeps its tokens, and they are computed again") {
    // 10 tokens of KV cache. A: 4 + 4, B: 4 + 3. Both are prefilled (8) and decode once (10). The next step
    // has no room for two: B, the last admitted, gives way with 2 tokens. A ends at 4 ms. B's 4 + 2 tokens
    // are prefilled from 4 to 5 ms, which yields its third and last.
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_list({{Time(), 4, 4}, {Time(), 4, 3}}, serve_spec(mixed(10), kRecurrent), pricer);
    CHECK(r.preemptions == 1);
    CHECK(r.steps == 5);
    CHECK(r.generated_tokens == 7);  // none of them twice
    const FinishedRequest a = of_output(r, 4);
    CHECK(a.e2e == kMs * 4);
    CHECK(a.preempted == Time());
    const FinishedRequest b = of_output(r, 3);
    CHECK(b.queue == Time());
    CHECK(b.ttft == kMs);
    CHECK(b.preempted == kMs * 3);
    CHECK(b.e2e == kMs * 5);
    const StepShape& again = pricer.shapes().back();
    CHECK(again.prefill.new_tokens == 6);
    CHECK(again.prefill.cached_tokens == 0);
    CHECK(r.itl_ms.count == 5);  // A: 1, 1, 1; B: 1, 3
    CHECK(*r.itl_ms.mean == Approx(7.0 / 5.0));
}

TEST_CASE("prefill first: the fewest output tokens give way, and wait behind the others") {
    // 11 tokens. A: 4 + 7 arrives first and has a token more than B: 4 + 5 when memory runs out.
    // A prefilled 0-1, B 1-2, both decode 2-3 (contexts 4 -> 5: 10 tokens held). The step at 3 needs 2 more
    // than 10 of 11: B gives way. A decodes on alone from 6 to 10 cached tokens: its 7 tokens end at 8.
    ReplicaSpec spec =
        replica_of(StepRule::kPrefillFirst, AdmissionRule::kPrompt, VictimRule::kFewestOutput, 11);
    const FakePricer pricer = constant_step();
    const RunResult r = serve_list({{Time(), 4, 7}, {kMs, 4, 5}}, serve_spec(spec, kRecurrent), pricer);
    CHECK(r.preemptions == 1);
    // A: token at 1, B's prefill, then 3, 4, 5, 6, 7, 8.
    CHECK(of_output(r, 7).e2e == kMs * 8);
    CHECK(of_output(r, 7).interference == kMs);
    // B: tokens at 2 and 3, out until its prefill from 8 to 9 yields the third; then 10 and 11.
    CHECK(of_output(r, 5).e2e == kMs * 10);
    CHECK(of_output(r, 5).preempted == kMs * 6);
    CHECK(of_output(r, 5).interference == Time());
}

TEST_CASE("requests that cannot run together run after each other, whoever gives way") {
    // Each fills the cache alone: 5 + 7 tokens in 12.
    for (const StepRule steps : {StepRule::kPrefillFirst, StepRule::kMixed}) {
        for (const VictimRule victim : {VictimRule::kFewestOutput, VictimRule::kLastAdmitted}) {
            for (const AdmissionRule admission : {AdmissionRule::kEstimated, AdmissionRule::kPrompt}) {
                const ReplicaSpec spec = replica_of(steps, admission, victim, 12);
                const RunResult r = serve_list(std::vector<Arrival>(5, {Time(), 5, 7}),
                                               serve_spec(spec, kRecurrent), constant_step());
                CHECK(r.requests.completed == 5);
                CHECK(r.generated_tokens == 35);
            }
        }
    }
}

TEST_CASE("declared answers are never preempted, and what is declared is what is reserved") {
    // 20 tokens: 5 + 3 with 10 declared reserve 15, so that two run one after the other.
    const ReplicaSpec spec =
        replica_of(StepRule::kPrefillFirst, AdmissionRule::kDeclared, VictimRule::kFewestOutput, 20);
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_list({{Time(), 5, 3, 10}, {Time(), 5, 3, 10}}, serve_spec(spec, kRecurrent), pricer);
    CHECK(r.preemptions == 0);
    CHECK(r.steps == 6);
    // 16 declared would never fit, although 3 would.
    CHECK(serve_list({{Time(), 5, 3, 16}}, serve_spec(spec, kRecurrent), pricer).rejected_by.kv_tokens == 1);
}

TEST_CASE("shortest first serves by prompt and declared answer") {
    ReplicaSpec spec =
        replica_of(StepRule::kPrefillFirst, AdmissionRule::kDeclared, VictimRule::kFewestOutput, 1000);
    spec.max_running = 1;
    spec.scheduler.order = QueueOrder::kShortestFirst;
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_list({{Time(), 9, 1}, {Time(), 3, 3}, {Time(), 1, 2}}, serve_spec(spec, kRecurrent), pricer);
    REQUIRE(r.finished.size() == 3);
    CHECK(r.finished[0].output_tokens == 2);  // 1 + 2, 3 + 3, 9 + 1
    CHECK(r.finished[1].output_tokens == 3);
    CHECK(r.finished[2].output_tokens == 1);
}

TEST_CASE("the queue keeps the order of arrival, and a head before it") {
    WaitingQueue queue(QueueOrder::kFirstCome);
    queue.push_back(7, 50);
    queue.push_back(3, 10);
    queue.push_front(5, 99);
    queue.push_front(6, 1);
    for (const Slot expected : {6U, 5U, 7U, 3U}) {
        CHECK(queue.front() == expected);
        queue.pop();
    }
    CHECK(queue.empty());
}

TEST_CASE("the share of estimated answers decays by steps and starts again") {
    SchedulerSpec scheduler;
    scheduler.admission = AdmissionRule::kEstimated;  // 0.7 to 0.098 in 600 steps
    Admission admission(scheduler, 0);
    CHECK(admission.new_token_ratio() == Approx(0.7));
    for (int i = 0; i < 300; ++i) admission.decode_step_ended();
    CHECK(admission.new_token_ratio() == Approx(0.399));
    for (int i = 0; i < 400; ++i) admission.decode_step_ended();
    CHECK(admission.new_token_ratio() == Approx(0.098));
    admission.start_again();
    CHECK(admission.new_token_ratio() == Approx(0.7));
}

TEST_CASE("estimated admission sets aside a share of what others may still yield, and all of its own") {
    SchedulerSpec scheduler;
    scheduler.admission = AdmissionRule::kEstimated;
    Admission admission(scheduler, 0);
    MemoryPool pool(split_pool(10, 100));
    pool.admit(20);  // decodes, 50 tokens still to come: 35 of them count
    admission.admitted(51);
    admission.prefilled(50);
    CHECK(admission.admits(pool, {25, 20}));  // 20 + 25 + 35 + 20 = 100
    CHECK_FALSE(admission.admits(pool, {26, 20}));
    CHECK_FALSE(admission.admits(pool, {25, 21}));
    admission.yielded(10);  // 40 still to come: 28
    CHECK(admission.admits(pool, {32, 20}));
    CHECK_FALSE(admission.admits(pool, {33, 20}));
    pool.release(20);
    CHECK(admission.admits(pool, {100, 1}));  // alone, nothing is set aside
}

TEST_CASE("a watermark keeps a share of the pool free") {
    SchedulerSpec scheduler;
    scheduler.admission = AdmissionRule::kPrompt;
    scheduler.watermark = 0.1;
    const Admission admission(scheduler, 0);
    MemoryPool pool(split_pool(10, 100));
    CHECK(admission.admits(pool, {100, 5}));  // alone
    pool.admit(50);
    CHECK(admission.admits(pool, {40, 5}));
    CHECK_FALSE(admission.admits(pool, {41, 5}));
}

TEST_CASE("victims: fewest output tokens, then the longest prompt; or the last admitted") {
    const VictimCandidate old_long{5, 100, 1};
    const VictimCandidate new_short{5, 10, 2};
    const VictimCandidate oldest_output{9, 1, 3};
    CHECK(gives_way_before(VictimRule::kFewestOutput, old_long, new_short));
    CHECK(gives_way_before(VictimRule::kFewestOutput, new_short, oldest_output));
    CHECK(gives_way_before(VictimRule::kLastAdmitted, oldest_output, new_short));
    CHECK(gives_way_before(VictimRule::kLastAdmitted, new_short, old_long));
}

TEST_CASE("states and KV entries share the blocks of a paged pool") {
    // 10 blocks: a request holds 2 of state and one per 4 tokens. Two of 4 + 1 tokens take 3 each; a third
    // fits (9), a fourth has to wait.
    ReplicaSpec spec = mixed(0);
    spec.pool = {};
    spec.pool.slots_per_request = 0;
    spec.pool.units = 10;
    spec.pool.units_per_request = 2;
    spec.pool.page_tokens = 4;
    spec.pool.unit_limit = Limit::kBlocks;
    const FakePricer pricer = constant_step();
    const RunResult r =
        serve_list(std::vector<Arrival>(4, {Time(), 4, 1}), serve_spec(spec, kRecurrent), pricer);
    REQUIRE(pricer.shapes().size() == 2);
    CHECK(pricer.shapes()[0].prefill.sequences == 3);
    // 33 tokens are 9 blocks and 2 of state.
    CHECK(serve_list({{Time(), 32, 1}}, serve_spec(spec, kRecurrent), pricer).rejected_by.blocks == 1);
    CHECK(serve_list({{Time(), 31, 1}}, serve_spec(spec, kRecurrent), pricer).requests.completed == 1);
}

TEST_CASE("round robin takes replicas in turn, least loaded the one with the fewest requests") {
    Router turns(RouterRule::kRoundRobin, 3);
    const auto none = [](std::size_t) { return 0; };
    for (const std::size_t expected : {0U, 1U, 2U, 0U}) CHECK(turns.pick(none) == expected);
    Router least(RouterRule::kLeastLoaded, 3);
    CHECK(least.pick([](std::size_t i) { return 3 - static_cast<int>(i); }) == 2);
    CHECK(least.pick(none) == 0);
}

TEST_CASE("replicas run beside each other, in a fixed order of events") {
    // A is long; B and C are short. Round robin sends C behind A, least loaded behind B, which has left.
    ReplicaSpec replica =
        replica_of(StepRule::kPrefillFirst, AdmissionRule::kDeclared, VictimRule::kFewestOutput, 1000);
    replica.max_running = 1;
    ServeSpec spec = serve_spec(replica, kRecurrent);
    spec.replicas = 2;
    const std::vector<Arrival> arrivals{{Time(), 1, 9}, {Time(), 1, 1}, {kMs * 2, 1, 2}};
    const RunResult turns = serve_list(arrivals, spec, constant_step());
    CHECK(of_output(turns, 2).queue == kMs * 7);
    CHECK(turns.simulated == kMs * 11);
    spec.router = RouterRule::kLeastLoaded;
    const RunResult least = serve_list(arrivals, spec, constant_step());
    CHECK(of_output(least, 2).queue == Time());
    CHECK(least.simulated == kMs * 9);
    CHECK(least.busy == kMs * 12);
}

}  // namespace
}  // namespace kvsim
