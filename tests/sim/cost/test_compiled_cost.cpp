// The compiled cost against the walk of the graph, picosecond by picosecond and byte by byte: every model of
// configs/models, every engine, every kind of step.
#include <random>

#include "sim/cost/compiled_cost.hpp"
#include "tests/sim/cost/configs.hpp"
#include "tests/sim/cost/step_cost_support.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

class RandomSteps {
  public:
    explicit RandomSteps(std::uint32_t seed) : random_(seed) {}

    std::int64_t draw(std::int64_t limit) {  // 0 .. limit - 1
        return static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(limit));
    }

    void add_decode(StepShape& s) {
        const std::int64_t rows = 1 + draw(draw(4) == 0 ? 1500 : 100);
        const std::int64_t flushes = draw(rows);
        if (draw(3) == 0) {
            const std::int64_t tokens = 2 + draw(5);
            const Form form = draw(2) == 0 ? Form::kVerifyStored : Form::kVerifyBuffered;
            s[form] = {rows, rows * tokens, 0, 0, 0};
            if (form == Form::kVerifyBuffered)
                s[form] = {rows, rows * tokens, rows * draw(12), flushes, flushes * draw(12)};
            s.logit_rows += rows * tokens;
        } else {
            const std::int64_t recurrent = draw(2) == 0 ? 0 : draw(rows);
            if (recurrent > 0) s[Form::kRecurrent] = {recurrent, recurrent, 0, 0, 0};
            const std::int64_t buffered = rows - recurrent;
            const std::int64_t flushed = std::min(flushes, buffered);
            s[Form::kBuffered] = {buffered, buffered, buffered * draw(15), flushed, flushed * (1 + draw(15))};
            s.logit_rows += rows;
        }
        set_contexts(s, rows);
    }

    void add_prefill(StepShape& s) {
        const std::int64_t sequences = 1 + draw(4);
        const std::int64_t each = 1 + draw(draw(2) == 0 ? 3000 : 60);
        const std::int64_t cached = draw(2) == 0 ? 0 : draw(5000);
        s.prefill = {sequences, sequences * each, sequences * cached,
                     sequences * (each * cached + each * (each + 1) / 2)};
        s.logit_rows += draw(sequences + 1);  // prompts that end here
    }

    StepShape step() {
        StepShape s;
        const std::int64_t kind = draw(4);  // two of decode, one of prefill, one of both
        if (kind != 2) add_decode(s);
        if (kind >= 2) add_prefill(s);
        if (draw(4) == 0) s.state_copies = 1 + draw(20);
        if (draw(4) == 0) s.folds = {1 + draw(3), 3 + draw(20)};
        return s;
    }

    // The next step of the same rows: contexts, fills and flushes change.
    void advance(StepShape& s) {
        const std::int64_t rows = s.decode.sequences;
        if (rows == 0) return;
        set_contexts(s, rows);
        LinearWork& buffered = s[Form::kBuffered];
        buffered.buffered_tokens = buffered.sequences * draw(15);
        if (buffered.sequences > 0) {
            buffered.flushes = draw(buffered.sequences + 1);
            buffered.flushed_tokens = buffered.flushes * (1 + draw(15));
        }
    }

  private:
    void set_contexts(StepShape& s, std::int64_t rows) {
        const std::int64_t context = draw(draw(3) == 0 ? 40'000 : 2'000);
        s.decode = {rows, rows * context + draw(rows), context + 1 + draw(5'000)};
        if (rows == 1) s.decode.context_max = s.decode.context_sum;
    }

    std::mt19937 random_;
};

void check_same(const StepCost& cost, CompiledStepCost& compiled, const StepShape& s) {
    const StepPrice walked = cost.price(s);
    const StepPrice planned = compiled.price(s);
    CHECK(to_us(planned.time) == Approx(to_us(walked.time)).epsilon(1e-6));
    CHECK(planned.time == walked.time);  // both are sums of the same integers
    CHECK(planned.bytes == walked.bytes);
    CHECK(planned.time_by_source == walked.time_by_source);
    CHECK(planned.linear_time == walked.linear_time);
    CHECK(planned.flush_time == walked.flush_time);
    CHECK(planned.flush_time >= Time());
    Time sources;
    for (const Time t : planned.time_by_source) sources += t;
    CHECK(sources == planned.time);
}

void check_all_kinds(const StepCost& cost, bool drafts, RandomSteps& random, int trials) {
    CompiledStepCost compiled(cost);
    for (int trial = 0; trial < trials; ++trial) {
        StepShape s = random.step();
        if (drafts && random.draw(2) == 0) s.drafts = 1 + static_cast<int>(random.draw(5));
        if (s.drafts > 0 && s.prefill.sequences > 0 && random.draw(2) == 0) {
            const std::int64_t longest = 1 + random.draw(9'000);
            s.fresh = {s.prefill.sequences, longest + random.draw(4'000) * (s.prefill.sequences - 1),
                       longest};
        }
        for (int i = 0; i < 4; ++i) {
            check_same(cost, compiled, s);
            random.advance(s);
        }
    }
}

}  // namespace

TEST_CASE("the compiled cost is the walk of the graph, for every model and engine", "[compiled_cost]") {
    RandomSteps random(5);
    const std::vector<EngineSteps> engines{committed_engine("sglang"), committed_engine("vllm"),
                                           committed_engine("ideal")};
    for (const ModelSpec& model : all_committed()) {
        INFO(model.name);
        for (const EngineSteps& e : engines)
            check_all_kinds(step_cost(model, e), !model.mtp_pattern.empty(), random, 16);
    }
}

TEST_CASE("the compiled cost is the walk of the graph over several ranks", "[compiled_cost]") {
    RandomSteps random(6);
    for (const char* name : {"qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "nemotron-3-super-120b-a12b"}) {
        INFO(name);
        const ModelSpec model = committed(name);
        for (const Parallelism& p : {Parallelism{2, 1, 1}, Parallelism{4, 4, 2}, Parallelism{8, 2, 8}})
            check_all_kinds(step_cost(model, committed_engine("sglang"), p), true, random, 12);
    }
}

TEST_CASE("attention beside the linear mixer of its layer: flush_time counts what the longer branch gains",
          "[compiled_cost]") {
    // Falcon-H1's layers have both; one branch or the other is the longer one as contexts grow.
    const StepCost cost = step_cost(committed("falcon-h1-7b"), committed_engine("ideal"));
    CompiledStepCost compiled(cost);
    for (const std::int64_t context : {100, 1'000, 4'000, 16'000, 64'000}) {
        const StepShape s = decode(Form::kBuffered, 64, context, 64 * 7, 8);
        check_same(cost, compiled, s);
        StepShape plain = s;
        plain[Form::kBuffered].flushes = 0;
        plain[Form::kBuffered].flushed_tokens = 0;
        CHECK(compiled.price(s).flush_time == cost.price(s).time - cost.price(plain).time);
    }
}

TEST_CASE("many different steps leave the compiled cost as it is", "[compiled_cost]") {
    // More numbers of tokens, and more plans, than are kept: what is dropped is made again.
    const StepCost cost = step_cost(qwen35_35b_a3b(), committed_engine("sglang"));
    CompiledStepCost compiled(cost);
    const StepShape s = decode(Form::kBuffered, 3, 700, 20, 1);
    const StepPrice before = compiled.price(s);
    for (std::int64_t batch = 1; batch < 3'000; ++batch) compiled.price(decode(Form::kRecurrent, batch, 10));
    for (std::int64_t tokens = 1; tokens < 40'000; tokens += 7) compiled.price(prefill(1, tokens));
    const StepPrice after = compiled.price(s);
    CHECK(after.time == before.time);
    CHECK(after.bytes == before.bytes);
    for (const std::int64_t tokens : {1, 1'023, 1'024, 16'384, 16'385, 39'999, (1 << 24) + 1})
        check_same(cost, compiled, prefill(1, tokens));
}

TEST_CASE("the compiled cost is affine in the context between breakpoints", "[compiled_cost]") {
    const ModelSpec model = qwen35_4b();
    const StepCost cost = step_cost(model);
    CompiledStepCost compiled(cost);
    // Between 2048 and 2304 keys (eight breakpoints to an octave): equal steps of the context, equal steps of
    // time.
    std::vector<std::int64_t> ps;
    for (std::int64_t context = 2047; context < 2303; context += 16)
        ps.push_back(compiled.price(decode(Form::kRecurrent, 64, context)).time.value());
    for (std::size_t i = 2; i < ps.size(); ++i) {
        const std::int64_t bend = (ps[i] - ps[i - 1]) - (ps[i - 1] - ps[i - 2]);
        CHECK(std::abs(bend) <= 2 * 8);  // rounding of eight layers
    }
    CHECK(ps.back() > ps.front());
}
