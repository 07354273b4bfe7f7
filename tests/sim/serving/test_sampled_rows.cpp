// Rows that speculate: cases worked out by hand, and a long random run against rows followed one by one.
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/policies/speculation.hpp"
#include "sim/serving/sampled_rows.hpp"
#include "sim/serving/speculative_times.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

class ConstantPricer final : public StepPricer {
  public:
    StepPrice price(const StepShape&) const override {
        StepPrice price;
        price.time = time_from_us(1000.0);
        return price;
    }
};
const ConstantPricer kPricer;

SampledRowsParts static_parts(Form form, int drafts, std::vector<double> rates, int buffer_length = 8) {
    SampledRowsParts parts;
    parts.speculation = {.policy = "static", .drafts = drafts, .acceptance = {.rates = std::move(rates)}};
    parts.linear = {.form = form, .buffer_length = buffer_length, .drafts = drafts};
    parts.pricer = &kPricer;
    return parts;
}

struct Outcome {
    StepShape shape;
    std::vector<TokenGap> gaps;
    std::vector<Slot> finished;
    std::int64_t tokens = 0;
};

Outcome step(DecodeRows& rows, Time now) {
    Outcome o;
    rows.form_step(o.shape, {});
    o.tokens = rows.end_step(now, o.gaps, o.finished);
    return o;
}

// ---- by hand ----

TEST_CASE("stored states: T tokens per row, all kept, the last step cut to what remains") {
    const auto rows = make_sampled_rows(static_parts(Form::kRecurrent, 3, {1.0}));
    rows->join({.slot = 2, .context = 10, .remaining = 6, .last_token = Time(100)});
    Outcome o = step(*rows, Time(300));
    const LinearWork& work = o.shape[Form::kVerifyStored];
    CHECK(work.sequences == 1);
    CHECK(work.new_tokens == 4);
    CHECK(work.buffered_tokens + work.flushes + work.flushed_tokens == 0);
    CHECK(o.shape.decode.context_sum == 10);
    CHECK(o.shape.decode.context_max == 10);
    CHECK(o.shape.logit_rows == 4);
    CHECK(o.shape.drafts == 3);
    CHECK(o.tokens == 4);
    CHECK(rows->yielded(2) == 4);
    CHECK(rows->context_sum() == 14);
    REQUIRE(o.gaps.size() == 1);
    CHECK((o.gaps[0].gap == Time(200) && o.gaps[0].count == 1 && o.gaps[0].tokens == 4));

    o = step(*rows, Time(350));
    CHECK(o.tokens == 2);
    CHECK(o.finished == std::vector<Slot>{2});
    CHECK((o.gaps[0].gap == Time(50) && o.gaps[0].tokens == 2));
    CHECK(rows->rows() == 0);
    CHECK(rows->context_sum() == 0);
    rows->join({.slot = 2, .context = 5, .remaining = 1, .last_token = Time(360)});  // the slot is free again
    CHECK(step(*rows, Time(400)).finished == std::vector<Slot>{2});
}

struct RingStep {
    std::int64_t read;
    std::int64_t flushed;
};

void check_ring(const SampledRowsParts& parts, const std::vector<RingStep>& expected) {
    const auto rows = make_sampled_rows(parts);
    rows->join({.slot = 0, .context = 10, .remaining = 1000});
    for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO("step " << i);
        CHECK(rows->buffered_tokens() == expected[i].read);
        const Form form = parts.speculation.drafts > 0 ? Form::kVerifyBuffered : Form::kBuffered;
        const LinearWork work = step(*rows, Time(static_cast<std::int64_t>(i) + 1)).shape[form];
        CHECK(work.buffered_tokens == expected[i].read);
        CHECK(work.flushes == (expected[i].flushed > 0 ? 1 : 0));
        CHECK(work.flushed_tokens == expected[i].flushed);
    }
}

TEST_CASE("partial acceptance: only what is kept stays in the ring, which wraps around when it flushes") {
    // Of three drafts always one is kept: two records per step. A ring of 12 leaves room for four new records
    // beside 8: from six a row might get to ten, and folds its six.
    SampledRowsParts parts = static_parts(Form::kBuffered, 3, {1.0, 0.0}, 12);
    check_ring(parts, {{0, 0}, {2, 0}, {4, 0}, {6, 6}, {2, 0}, {4, 0}, {6, 6}, {2, 0}});
    // So does one of 8 and four beside them.
    parts = static_parts(Form::kBuffered, 3, {1.0, 0.0}, 8);
    parts.draft_records = DraftRecords::kBeside;
    check_ring(parts, {{0, 0}, {2, 0}, {4, 0}, {6, 6}, {2, 0}, {4, 0}, {6, 6}, {2, 0}});
    // Within a ring of 8, four records may be kept: every step might keep more beside its two.
    check_ring(static_parts(Form::kBuffered, 3, {1.0, 0.0}, 8), {{0, 0}, {2, 2}, {2, 2}, {2, 2}});
    // All three kept beside 8: 6 + 3 > 8.
    parts = static_parts(Form::kBuffered, 2, {1.0});
    parts.draft_records = DraftRecords::kBeside;
    check_ring(parts, {{0, 0}, {3, 0}, {6, 6}, {3, 0}, {6, 6}});
    // A buffer shorter than T holds one step.
    check_ring(static_parts(Form::kBuffered, 3, {1.0}, 2), {{0, 0}, {4, 4}, {4, 4}, {4, 4}});
}

TEST_CASE("without drafts it is plain decode: every m-th token folds m records") {
    check_ring(static_parts(Form::kBuffered, 0, {}, 4),
               {{0, 0}, {1, 0}, {2, 0}, {3, 4}, {0, 0}, {1, 0}, {2, 0}, {3, 4}});
    const auto rows = make_sampled_rows(static_parts(Form::kRecurrent, 0, {}));
    rows->join({.slot = 0, .context = 3, .remaining = 2});
    CHECK(step(*rows, Time(1)).shape[Form::kRecurrent].new_tokens == 1);
}

TEST_CASE("rejected drafts give their KV pages back") {
    SampledRowsParts parts = static_parts(Form::kRecurrent, 3, {0.0});
    parts.page_tokens = 4;
    const auto rejected = make_sampled_rows(parts);
    rejected->join({.slot = 0, .context = 3, .remaining = 100});
    CHECK(rejected->pages_needed() == 1);  // 7 tokens in 2 pages, of which it holds 1
    step(*rejected, Time(1));
    CHECK(rejected->pages_grown() == 0);   // 4 tokens
    CHECK(rejected->pages_needed() == 1);  // 8
    step(*rejected, Time(2));
    CHECK(rejected->pages_grown() == 1);  // 5

    parts.page_tokens = 1;
    const auto single = make_sampled_rows(parts);
    single->join({.slot = 0, .context = 3, .remaining = 100});
    CHECK(single->pages_needed() == 4);
    step(*single, Time(1));
    CHECK(single->pages_grown() == 1);
}

TEST_CASE("a change of the number of drafts takes effect one step later") {
    SampledRowsParts parts = static_parts(Form::kBuffered, 3, {1.0}, 16);
    parts.speculation = {.policy = "table", .table = {{1, 0}, {2, 3}}, .acceptance = {.rates = {1.0}}};
    const auto rows = make_sampled_rows(parts);
    rows->join({.slot = 0, .context = 10, .remaining = 100});
    rows->join({.slot = 1, .context = 20, .remaining = 100});
    StepShape shape = step(*rows, Time(1)).shape;  // as for one row before the first step
    CHECK(shape[Form::kBuffered].new_tokens == 2);
    CHECK(shape.drafts == 3);
    CHECK(rows->leave(1) == 1);
    shape = step(*rows, Time(2)).shape;
    CHECK(shape[Form::kVerifyBuffered].new_tokens == 4);
    CHECK(shape[Form::kVerifyBuffered].buffered_tokens == 1);
    CHECK(shape.drafts == 0);
    shape = step(*rows, Time(3)).shape;
    CHECK(shape[Form::kBuffered].new_tokens == 1);
    CHECK(shape[Form::kBuffered].buffered_tokens == 5);
}

TEST_CASE("draws depend on the request and its context, on nothing beside") {
    const SampledRowsParts parts = static_parts(Form::kBuffered, 5, {0.7});
    const auto alone = make_sampled_rows(parts);
    alone->join({.slot = 0, .context = 50, .remaining = 100, .request = 7});
    const auto among = make_sampled_rows(parts);
    for (Slot slot = 0; slot < 5; ++slot)
        among->join({.slot = slot, .context = 40 + slot, .remaining = 400, .request = slot});
    among->join({.slot = 9, .context = 50, .remaining = 100, .request = 7});
    std::int64_t yielded = 0;
    for (int i = 1; i <= 15; ++i) {
        step(*alone, Time(i));
        step(*among, Time(i));
        CHECK(among->yielded(9) + yielded == alone->yielded(0));
        if (i % 4 != 0) continue;  // preempted, and back
        yielded += among->leave(9);
        among->join({.slot = 9, .context = 50 + yielded, .remaining = 100 - yielded, .request = 7});
    }
    SampledRowsParts other = parts;
    other.seed = 2;
    const auto reseeded = make_sampled_rows(other);
    reseeded->join({.slot = 0, .context = 50, .remaining = 1000, .request = 7});
    alone->leave(0);
    alone->join({.slot = 0, .context = 50, .remaining = 1000, .request = 7});
    bool differs = false;
    for (int i = 16; i < 40; ++i) {
        step(*alone, Time(i));
        step(*reseeded, Time(i));
        differs = differs || alone->yielded(0) != reseeded->yielded(0);
    }
    CHECK(differs);
}

TEST_CASE("tokens per step are those of the closed form within five standard deviations") {
    for (const int k : {1, 3, 7}) {
        constexpr double a = 0.75;
        constexpr int kRows = 500, kSteps = 200;
        const auto rows = make_sampled_rows(static_parts(Form::kRecurrent, k, {a}));
        for (Slot slot = 0; slot < kRows; ++slot)
            rows->join({.slot = slot, .context = 100, .remaining = 100'000, .request = slot});
        std::int64_t tokens = 0;
        for (int i = 1; i <= kSteps; ++i) tokens += step(*rows, Time(i)).tokens;
        double mean = 0.0, square = 0.0;  // of the drafts kept: P(X >= i) = a^i
        for (int i = 1; i <= k; ++i) {
            mean += std::pow(a, i);
            square += (2 * i - 1) * std::pow(a, i);
        }
        CHECK(1.0 + mean == Approx((1.0 - std::pow(a, k + 1)) / (1.0 - a)));
        const double n = kRows * kSteps;
        CHECK(std::abs(static_cast<double>(tokens) / n - 1.0 - mean) <
              5.0 * std::sqrt((square - mean * mean) / n));
    }
}

TEST_CASE("policies are told of a batch as it is after many steps") {
    constexpr int kRows = 200;
    for (const DraftRecords records : {DraftRecords::kWithin, DraftRecords::kBeside}) {
        for (const int k : {0, 1, 3, 7}) {
            SampledRowsParts parts = static_parts(Form::kBuffered, k, {0.8}, 16);
            parts.draft_records = records;
            const auto rows = make_sampled_rows(parts);
            for (Slot slot = 0; slot < kRows; ++slot)
                rows->join({.slot = slot, .context = 100, .remaining = 1'000'000, .request = slot});
            LinearWork sum;
            constexpr int kSteps = 1600;
            const Form form = k > 0 ? Form::kVerifyBuffered : Form::kBuffered;
            for (int i = 1; i <= kSteps; ++i) {
                const LinearWork work = step(*rows, Time(i)).shape[form];
                sum.buffered_tokens += work.buffered_tokens;
                sum.flushes += work.flushes;
                sum.flushed_tokens += work.flushed_tokens;
            }
            LinearServing linear = parts.linear;
            linear.form = Form::kVerifyBuffered;
            const SpeculativeTimes times(Form::kVerifyBuffered, RingRule(linear, records),
                                         Acceptance({.rates = {0.8}}), kPricer);
            const LinearWork told = times.shape(kRows, 100, k)[form];
            CHECK(told.new_tokens == kRows * (1 + k));
            INFO("drafts " << k);
            CHECK(double(told.buffered_tokens) == Approx(double(sum.buffered_tokens) / kSteps).epsilon(0.08));
            CHECK(double(told.flushes) == Approx(double(sum.flushes) / kSteps).epsilon(0.08).margin(0.5));
            CHECK(double(told.flushed_tokens) == Approx(double(sum.flushed_tokens) / kSteps).epsilon(0.08));
        }
    }
}

TEST_CASE("policies are told of whole flushes: none folds no records") {
    // A ring of 16, 0.8: a row flushes in every fifth step or so, which rounds to none of one and two rows.
    LinearServing linear{.form = Form::kVerifyBuffered, .buffer_length = 16, .drafts = 3};
    const SpeculativeTimes times(Form::kVerifyBuffered, RingRule(linear, DraftRecords::kWithin),
                                 Acceptance({.rates = {0.8}}), kPricer);
    for (std::int64_t rows = 1; rows <= 40; ++rows) {
        const LinearWork told = times.shape(rows, 100, 3)[Form::kVerifyBuffered];
        CHECK((told.flushes > 0) == (told.flushed_tokens > 0));
        CHECK(told.flushed_tokens <= 16 * told.flushes);
    }
    CHECK(times.shape(1, 100, 3)[Form::kVerifyBuffered].flushes == 0);
}

TEST_CASE("what cannot speculate is refused") {
    SampledRowsParts parts = static_parts(Form::kDirect, 2, {0.5});
    CHECK_THROWS_WITH(make_sampled_rows(parts),
                      "linear.form: expected recurrent or buffered with speculation, got direct");
    parts = static_parts(Form::kBuffered, 2, {0.5});
    parts.linear.flush.policy = "staggered";
    CHECK_THROWS_WITH(make_sampled_rows(parts),
                      "linear.flush.policy: expected one of fixed_length, aligned, deferred, deferred_under_load with "
                      "speculation, got staggered: a row leaves its phase with the drafts that it keeps");
    parts.linear.form = Form::kRecurrent;  // has no buffers to flush
    CHECK(make_sampled_rows(parts) != nullptr);
    parts = static_parts(Form::kBuffered, 2, {0.5});
    parts.linear.drafts = 3;  // memory set aside for other drafts than are made
    CHECK_THROWS_AS(make_sampled_rows(parts), InvariantError);
}

// ---- against rows followed one by one ----

struct Row {
    std::int64_t context = 0;
    std::int64_t remaining = 0;
    std::int64_t fill = 0;
    std::int64_t joined = 0;
    Time last_token;
    std::uint64_t request = 0;
};

class Followed {
  public:
    Followed(const SampledRowsParts& parts)
        : parts_(parts),
          acceptance_(parts.speculation.acceptance),
          stored_(parts.linear.form == Form::kRecurrent) {
        const int verified = 1 + parts.linear.drafts;
        const int length = std::max(parts.linear.buffer_length, verified);
        const int room = parts.linear.drafts > 0 ? verified : 0;
        ring_ = parts.draft_records == DraftRecords::kBeside ? length + room : std::max(length, 2 * room);
        most_ = std::min<std::int64_t>(length, ring_ - room);
        drafts_ = choose(1);
    }

    std::map<Slot, Row> rows;

    int choose(std::size_t n) const {
        int k = 0;
        for (const auto& [batch, drafts] : parts_.speculation.table)
            if (static_cast<std::size_t>(batch) <= n) k = drafts;
        return k;
    }
    std::int64_t pages(std::int64_t tokens) const {
        return (tokens + parts_.page_tokens - 1) / parts_.page_tokens;
    }
    bool flushes(const Row& row) const {
        if (stored_) return false;
        return drafts_ == 0 ? row.fill + 1 >= most_ : row.fill + 1 + drafts_ > most_;
    }

    std::int64_t pages_needed() const {
        std::int64_t needed = 0;
        for (const auto& [slot, row] : rows) needed += pages(row.context + 1 + drafts_) - pages(row.context);
        return needed;
    }

    void check_shape(const StepShape& shape) {
        const Form form = drafts_ == 0 ? (stored_ ? Form::kRecurrent : Form::kBuffered)
                                       : (stored_ ? Form::kVerifyStored : Form::kVerifyBuffered);
        LinearWork expected;
        std::int64_t contexts = 0, longest = 0;
        for (const auto& [slot, row] : rows) {
            ++expected.sequences;
            expected.new_tokens += 1 + drafts_;
            expected.buffered_tokens += row.fill;
            if (flushes(row)) {
                ++expected.flushes;
                expected.flushed_tokens += row.fill + (drafts_ == 0 ? 1 : 0);
            }
            // There is room for the new records beside the old ones, in steps that flush too.
            if (!stored_) CHECK(row.fill + 1 + drafts_ <= ring_);
            contexts += row.context;
            longest = std::max(longest, row.context);
        }
        for (int f = 0; f < kFormCount; ++f) {
            const LinearWork& work = shape[static_cast<Form>(f)];
            const LinearWork& want = static_cast<Form>(f) == form ? expected : LinearWork{};
            CHECK((work.sequences == want.sequences && work.new_tokens == want.new_tokens));
            CHECK(work.buffered_tokens == want.buffered_tokens);
            CHECK((work.flushes == want.flushes && work.flushed_tokens == want.flushed_tokens));
        }
        CHECK(shape.decode.sequences == expected.sequences);
        CHECK(shape.decode.context_sum == contexts);
        CHECK(shape.decode.context_max == longest);
        CHECK(shape.logit_rows == expected.new_tokens);
        next_ = choose(rows.size());
        CHECK(shape.drafts == next_);
    }

    struct End {
        std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> gaps;  // count, tokens
        std::vector<Slot> finished;
        std::int64_t tokens = 0;
        std::int64_t pages = 0;
    };
    End end(Time now) {
        End e;
        for (auto& [slot, row] : rows) {
            const std::uint64_t stream =
                numbered_bits(stream_seed(parts_.seed, "acceptance"), row.request + 1);
            const std::uint64_t bits = numbered_bits(stream, static_cast<std::uint64_t>(row.context));
            const std::int64_t kept = acceptance_.draw(drafts_, row.context, Acceptance::uniform(bits));
            const std::int64_t tokens = std::min(kept + 1, row.remaining);
            if (drafts_ == 0) {
                row.fill = stored_ || flushes(row) ? 0 : row.fill + 1;
            } else {
                row.fill = stored_ ? 0 : (flushes(row) ? 0 : row.fill) + tokens;
            }
            CHECK(row.fill <= ring_);
            auto& [count, of_gap] = e.gaps[(now - row.last_token).value()];
            ++count;
            of_gap += tokens;
            e.tokens += tokens;
            e.pages += pages(row.context + tokens) - pages(row.context);
            row.context += tokens;
            row.remaining -= tokens;
            row.last_token = now;
            if (row.remaining == 0) e.finished.push_back(slot);
        }
        for (const Slot slot : e.finished) rows.erase(slot);
        drafts_ = next_;
        return e;
    }

  private:
    SampledRowsParts parts_;
    Acceptance acceptance_;
    bool stored_;
    std::int64_t ring_ = 0;
    std::int64_t most_ = 0;  // records that a row ever comes with
    int drafts_ = 0;
    int next_ = 0;
};

SampledRowsParts random_parts(RandomStream& random) {
    const auto below = [&](int n) { return static_cast<int>(random.bits() % static_cast<std::uint64_t>(n)); };
    SampledRowsParts parts;
    std::vector<double> rates;
    for (int i = 0; i < 1 + below(3); ++i) rates.push_back(below(5) == 0 ? below(2) : random.uniform());
    std::optional<double> half;
    if (below(3) == 0) half = 1.0 + below(200);
    parts.speculation = {.policy = "table",
                         .table = {{1, below(9)}, {2 + below(4), below(9)}, {7 + below(8), below(9)}},
                         .acceptance = {.rates = rates, .half_context = half}};
    parts.linear = {.form = below(3) == 0 ? Form::kRecurrent : Form::kBuffered,
                    .buffer_length = 1 + below(20),
                    .drafts = parts.speculation.most_drafts()};
    parts.draft_records = below(2) == 0 ? DraftRecords::kWithin : DraftRecords::kBeside;
    parts.page_tokens = below(3) == 0 ? 1 : 1 + below(40);
    parts.seed = random.bits();
    parts.pricer = &kPricer;
    return parts;
}

void check_end(DecodeRows& rows, Followed& followed, Time now) {
    std::vector<TokenGap> gaps;
    std::vector<Slot> finished;
    const std::int64_t tokens = rows.end_step(now, gaps, finished);
    const Followed::End expected = followed.end(now);
    CHECK(tokens == expected.tokens);
    CHECK(finished == expected.finished);
    CHECK(rows.pages_grown() == expected.pages);
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> by_gap;
    for (const TokenGap& gap : gaps) {
        by_gap[gap.gap.value()].first += gap.count;
        by_gap[gap.gap.value()].second += gap.tokens;
    }
    CHECK(by_gap == expected.gaps);
}

TEST_CASE("books equal rows followed one by one over random steps") {
    RandomStream random(5, "sampled rows test");
    for (int round = 0; round < 150; ++round) {
        const SampledRowsParts parts = random_parts(random);
        const auto rows = make_sampled_rows(parts);
        Followed followed(parts);
        std::uint64_t request = 0;
        Time now;
        for (int i = 0; i < 60; ++i) {
            INFO("round " << round << ", step " << i);
            while (random.bits() % 3 != 0) {  // joins, some of them just when a step has ended
                const auto slot = static_cast<Slot>(random.bits() % 40);
                if (followed.rows.contains(slot)) continue;
                const auto context = static_cast<std::int64_t>(1 + random.bits() % 100);
                const auto remaining = static_cast<std::int64_t>(1 + random.bits() % 60);
                const Time last =
                    random.bits() % 2 == 0 ? now : now - Time(static_cast<std::int64_t>(random.bits() % 3));
                rows->join({slot, context, remaining, last, request});
                followed.rows[slot] = {context, remaining, 0, context, last, request};
                ++request;
            }
            if (!followed.rows.empty() && random.bits() % 4 == 0) {
                const auto [slot, row] = *followed.rows.begin();
                CHECK(rows->yielded(slot) == row.context - row.joined);
                CHECK(rows->leave(slot) == row.context - row.joined);
                followed.rows.erase(slot);
            }
            CHECK(rows->rows() == static_cast<std::int64_t>(followed.rows.size()));
            CHECK(rows->pages_needed() == followed.pages_needed());
            if (followed.rows.empty()) continue;
            StepShape shape;
            rows->form_step(shape, {});
            followed.check_shape(shape);
            now += Time(static_cast<std::int64_t>(1 + random.bits() % 5));
            check_end(*rows, followed, now);
        }
    }
}

}  // namespace
}  // namespace kvsim
