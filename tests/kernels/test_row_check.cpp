// The comparison that decides whether a launch is timed must itself be able to fail.
#include "kernels/calibrate/row_check.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "kernels/reference/gdn.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::calibrate;

namespace {

constexpr int kCapacity = 12;
constexpr int kStart = 9;  // records and new tokens wrap around
constexpr int kTokens = 5;
constexpr LinearShape kShape{Family::kGdn, 2, 4, 8, 8, StateFormat::kFp32};
const std::vector<float> kALog(4, 0.5f), kDtBias(4, -3.0f);

std::vector<float> normal(std::size_t count, std::mt19937& random) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random);
    return values;
}

bool has_ring(Form form) {
    return form == Form::kBuffered || form == Form::kVerifyBuffered;
}
bool is_verify(Form form) {
    return form == Form::kVerifyStored || form == Form::kVerifyBuffered;
}

RowContext context(Form form) {
    return {kShape, has_ring(form) ? kCapacity : 0, kALog, kDtBias, form};
}

RowSnapshot random_row(Form form, int fill, bool flush) {
    std::mt19937 random(3);
    const std::size_t tokens = is_verify(form) ? kTokens : 1;
    RowSnapshot row;
    row.row = 5;
    row.flush = flush;
    row.qkv = normal(tokens * (2 * 2 * 8 + 4 * 8), random);
    row.a = normal(tokens * 4, random);
    row.b = normal(tokens * 4, random);
    row.out.assign(tokens * 4 * 8, std::numeric_limits<float>::quiet_NaN());
    row.state = normal(4 * 8 * 8, random);
    if (form == Form::kVerifyStored) row.states.assign(tokens * row.state.size(), 0.0f);
    if (!has_ring(form)) return row;
    row.start = kStart;
    row.fill = fill;
    row.ring_k = normal(2 * kCapacity * 8, random);
    row.ring_u = normal(4 * kCapacity * 8, random);
    for (int h = 0; h < 4; ++h) {
        for (int i = 0; i < kCapacity; ++i) {
            const int record = (i + kCapacity - kStart) % kCapacity;
            row.ring_gate.push_back(-0.1f * static_cast<float>(record + 1));
        }
    }
    return row;
}

// The plain recurrence in double over a row's records and tokens, which takes another way than the buffered
// reference: records are replayed as rank-one updates.
struct Replay {
    explicit Replay(const RowSnapshot& row) : before(row), state(row.state.begin(), row.state.end()) {}

    int index(int record) const { return (before.start + record) % kCapacity; }
    double gate(int h, int record) const {
        return record < 0 ? 0.0 : before.ring_gate[h * kCapacity + index(record)];
    }
    void record(int n) {
        for (int h = 0; h < 4; ++h) {
            for (int r = 0; r < 8; ++r) {
                for (int c = 0; c < 8; ++c) {
                    double& x = state[static_cast<std::size_t>((h * 8 + r) * 8 + c)];
                    x = std::exp(gate(h, n) - gate(h, n - 1)) * x +
                        double(before.ring_u[(h * kCapacity + index(n)) * 8 + r]) *
                            before.ring_k[((h / 2) * kCapacity + index(n)) * 8 + c];
                }
            }
        }
    }
    // Writes token t's output and, where there is a ring, its record, whose gates follow `base`.
    void token(int t, RowSnapshot& after, std::array<double, 4>& base) {
        const auto part = [t](const std::vector<float>& x, std::size_t n) {
            return std::span(x).subspan(static_cast<std::size_t>(t) * n, n);
        };
        const reference::LinearToken token = reference::prepare(
            kShape, {kALog, kDtBias}, {part(before.qkv, 64), part(before.a, 4), part(before.b, 4)});
        const std::vector<double> old = state;
        std::vector<double> out(4 * 8);
        reference::recurrent_step(kShape, token, state, out);
        std::copy(out.begin(), out.end(), after.out.begin() + t * 32);
        if (after.ring_k.empty()) return;
        const int at = index(before.fill + t);
        for (int h = 0; h < 4; ++h) {
            base[h] += token.log_gate[h];
            after.ring_gate[h * kCapacity + at] = static_cast<float>(base[h]);
            for (int r = 0; r < 8; ++r) {
                double projection = 0.0;
                for (int c = 0; c < 8; ++c) projection += old[(h * 8 + r) * 8 + c] * token.k[(h / 2) * 8 + c];
                const double u =
                    token.beta[h] * (token.v[h * 8 + r] - std::exp(token.log_gate[h]) * projection);
                after.ring_u[(h * kCapacity + at) * 8 + r] = static_cast<float>(u * token.key_scale[h / 2]);
            }
            for (int c = 0; c < 8; ++c) {
                after.ring_k[((h / 2) * kCapacity + at) * 8 + c] = before.qkv[t * 64 + 16 + (h / 2) * 8 + c];
            }
        }
    }

    const RowSnapshot& before;
    std::vector<double> state;
};

// What a right kernel leaves.
RowSnapshot after_launch(Form form, const RowSnapshot& before) {
    RowSnapshot after = before;
    Replay replay(before);
    for (int i = 0; i < before.fill; ++i) replay.record(i);
    std::array<double, 4> base{};
    for (int h = 0; h < 4; ++h) base[h] = replay.gate(h, before.fill - 1);
    if (form == Form::kVerifyBuffered && before.flush) {  // folds the committed records alone
        after.state.assign(replay.state.begin(), replay.state.end());
        base.fill(0.0);
    }
    for (int t = 0; t < (is_verify(form) ? kTokens : 1); ++t) {
        replay.token(t, after, base);
        if (form == Form::kVerifyStored) {
            std::copy(replay.state.begin(), replay.state.end(), after.states.begin() + t * 256);
        }
    }
    if (!is_verify(form) && before.flush) after.state.assign(replay.state.begin(), replay.state.end());
    return after;
}

constexpr std::array kForms{Form::kRecurrent, Form::kBuffered, Form::kVerifyStored, Form::kVerifyBuffered};

}  // namespace

TEST_CASE("a right launch passes") {
    for (const Form form : kForms) {
        for (const bool flush : {false, true}) {
            if (form == Form::kRecurrent && !flush) continue;
            const int fullest = has_ring(form) ? kCapacity - (is_verify(form) ? kTokens : 1) : 0;
            for (int fill = 0; fill <= fullest; ++fill) {
                CAPTURE(name(form), flush, fill);
                const RowSnapshot before = random_row(form, fill, flush);
                const Verification result = check_row(context(form), before, after_launch(form, before));
                CHECK(result.failure == "");
                CHECK(result.max_error < 1e-6);
            }
        }
    }
}

TEST_CASE("every kind of fault is found and named") {
    const auto failure = [](Form form, bool flush, const std::function<void(RowSnapshot&)>& spoil) {
        const RowSnapshot before = random_row(form, 2, flush);
        RowSnapshot after = after_launch(form, before);
        spoil(after);
        return check_row(context(form), before, after).failure;
    };
    const auto off = [](float& x) { x += 0.1f; };
    const Form decode = Form::kBuffered, verify = Form::kVerifyBuffered, stored = Form::kVerifyStored;
    // Two records from index 9: the new ones lie at 11, 0, 1, ...
    CHECK_THAT(failure(decode, false, [&](RowSnapshot& r) { off(r.out[31]); }),
               ContainsSubstring("row 5: the output is"));
    CHECK_THAT(failure(decode, false, [&](RowSnapshot& r) { r.out[0] = std::nanf(""); }),
               ContainsSubstring("the output"));
    CHECK_THAT(failure(decode, false, [&](RowSnapshot& r) { r.ring_k[11 * 8] *= 1.004f; }),
               ContainsSubstring("the key of record 11"));
    CHECK_THAT(failure(decode, false, [&](RowSnapshot& r) { off(r.ring_u[11 * 8]); }),
               ContainsSubstring("the u of record 11"));
    CHECK_THAT(failure(decode, false, [&](RowSnapshot& r) { off(r.ring_gate[11]); }),
               ContainsSubstring("the log gate of record 11"));
    CHECK_THAT(failure(decode, false, [&](RowSnapshot& r) { off(r.ring_u[10 * 8]); }),
               ContainsSubstring("record 10 of the ring changed"));
    CHECK_THAT(failure(decode, true, [&](RowSnapshot& r) { off(r.state[255]); }),
               ContainsSubstring("the state"));
    CHECK_THAT(failure(decode, false, [&](RowSnapshot& r) { off(r.state[255]); }),
               ContainsSubstring("without a flush"));
    CHECK_THAT(failure(verify, false, [&](RowSnapshot& r) { off(r.out[4 * 32]); }),
               ContainsSubstring("the output of token 4"));
    CHECK_THAT(failure(verify, true, [&](RowSnapshot& r) { off(r.ring_gate[0]); }),
               ContainsSubstring("the log gate of record 0"));
    CHECK_THAT(failure(stored, false, [&](RowSnapshot& r) { off(r.states[3 * 256]); }),
               ContainsSubstring("the state after token 3"));
    CHECK_THAT(failure(stored, false, [&](RowSnapshot& r) { off(r.state[0]); }),
               ContainsSubstring("stores states elsewhere"));
    // A flush that did not happen; a verify that folds its own tokens too.
    CHECK_THAT(failure(decode, true, [&](RowSnapshot& r) { r.state = random_row(decode, 2, true).state; }),
               ContainsSubstring("the state"));
    CHECK_THAT(failure(verify, true,
                       [&](RowSnapshot& r) {
                           const RowSnapshot before = random_row(verify, 2, true);
                           r.state = after_launch(decode, before).state;
                       }),
               ContainsSubstring("the state"));
}

TEST_CASE("u records in fp32 are held to more than bf16 gives") {
    const RowSnapshot before = random_row(Form::kBuffered, 2, false);
    RowSnapshot after = after_launch(Form::kBuffered, before);
    RowContext c = context(Form::kBuffered);
    for (int h = 0; h < 4; ++h) {
        for (int r = 0; r < 8; ++r) {
            float& u = after.ring_u[(h * kCapacity + 11) * 8 + r];
            u = static_cast<float>(reference::round_to_bf16(u));
        }
    }
    CHECK(check_row(c, before, after).passed());
    c.shape.records = RecordFormat::kFp32U;
    CHECK_THAT(check_row(c, before, after).failure, ContainsSubstring("the u of record 11"));
}

TEST_CASE("a padding row comes out as zeros and touches nothing") {
    for (const Form form : kForms) {
        CAPTURE(name(form));
        RowSnapshot before = random_row(form, 2, true);
        before.padding = true;
        if (has_ring(form)) before.ring_u[0] = std::nanf("");  // what nobody wrote may hold anything
        RowSnapshot after = before;
        after.out.assign(after.out.size(), 0.0f);
        CHECK(check_row(context(form), before, after).failure == "");
        RowSnapshot spoilt = after;
        spoilt.out.back() = std::nanf("");
        CHECK_THAT(check_row(context(form), before, spoilt).failure, ContainsSubstring("not zero"));
        spoilt = after;
        spoilt.state[7] = 0.0f;
        CHECK_THAT(check_row(context(form), before, spoilt).failure, ContainsSubstring("on a padding row"));
        if (!has_ring(form)) continue;
        spoilt = after;
        spoilt.ring_gate[3] = 0.0f;
        CHECK_THAT(check_row(context(form), before, spoilt).failure, ContainsSubstring("wrote records"));
    }
}

TEST_CASE("a slot that no row names must stay as it is, what it holds included") {
    RowSnapshot before = random_row(Form::kVerifyBuffered, 2, false);
    before.ring_u[3] = std::nanf("");  // a record that nobody wrote
    RowSnapshot after = before;
    after.row = 7;
    CHECK(check_bystander(before, after).passed());
    for (const auto part :
         {&RowSnapshot::state, &RowSnapshot::ring_k, &RowSnapshot::ring_u, &RowSnapshot::ring_gate}) {
        RowSnapshot spoilt = after;
        (spoilt.*part).back() += 1.0f;
        CHECK_FALSE(check_bystander(before, spoilt).passed());
    }
}

TEST_CASE("rows that are compared") {
    std::vector<std::uint8_t> flush(512, 0);
    flush[100] = flush[200] = flush[300] = 1;
    const std::vector<int> rows = sampled_rows(512, flush, 8);
    const std::set<int> found(rows.begin(), rows.end());
    CHECK(found.size() == 8);
    for (const int row : {0, 511, 100, 200}) CHECK(found.count(row) == 1);
    CHECK(sampled_rows(1, {}, 8) == std::vector<int>{0});
    CHECK(sampled_rows(5, {}, 8) == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(sampled_rows(384, {}, 8).size() == 8);
}
