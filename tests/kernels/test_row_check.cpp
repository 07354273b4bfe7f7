// The comparison that decides whether a launch is timed must itself be able to fail.
#include "kernels/calibrate/row_check.hpp"

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

constexpr int kCapacity = 4;
constexpr LinearShape kShape{Family::kGdn, 2, 4, 8, 8, StateFormat::kFp32};
const std::vector<float> kALog(4, 0.5f), kDtBias(4, -3.0f);

std::vector<float> normal(std::size_t count, std::mt19937& random) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random);
    return values;
}

RowSnapshot random_row(int capacity, int fill, bool flush) {
    std::mt19937 random(3);
    RowSnapshot row;
    row.row = 5;
    row.fill = fill;
    row.flush = flush;
    row.qkv = normal(2 * 2 * 8 + 4 * 8, random);
    row.a = normal(4, random);
    row.b = normal(4, random);
    row.out.assign(4 * 8, std::numeric_limits<float>::quiet_NaN());
    row.state = normal(4 * 8 * 8, random);
    row.ring_k = normal(static_cast<std::size_t>(2 * capacity * 8), random);
    row.ring_u = normal(static_cast<std::size_t>(4 * capacity * 8), random);
    for (int h = 0; h < 4; ++h) {
        for (int i = 0; i < capacity; ++i) row.ring_gate.push_back(-0.1f * static_cast<float>(i + 1));
    }
    return row;
}

RowContext context(int capacity) {
    return {kShape, capacity, kALog, kDtBias};
}

// What a right kernel leaves, from the plain recurrence in double: the ring's records are replayed as
// rank-one updates, so this takes another way than the buffered reference.
RowSnapshot after_launch(const RowSnapshot& before, int capacity) {
    RowSnapshot after = before;
    const reference::GdnToken token =
        reference::prepare(kShape, {kALog, kDtBias}, {before.qkv, before.a, before.b});
    std::vector<double> state(before.state.begin(), before.state.end());
    for (int h = 0; h < 4; ++h) {
        for (int i = 0; i < before.fill; ++i) {
            const auto gate = [&](int n) { return n < 0 ? 0.0 : double(before.ring_gate[h * capacity + n]); };
            for (int r = 0; r < 8; ++r) {
                for (int c = 0; c < 8; ++c) {
                    double& x = state[static_cast<std::size_t>((h * 8 + r) * 8 + c)];
                    x = std::exp(gate(i) - gate(i - 1)) * x +
                        double(before.ring_u[(h * capacity + i) * 8 + r]) *
                            before.ring_k[((h / 2) * capacity + i) * 8 + c];
                }
            }
        }
    }
    const std::vector<double> old = state;
    std::vector<double> out(4 * 8);
    reference::recurrent_step(kShape, token, state, out);
    after.out.assign(out.begin(), out.end());
    if (before.flush) after.state.assign(state.begin(), state.end());
    if (capacity == 0) return after;
    for (int h = 0; h < 4; ++h) {
        const int at = h * capacity + before.fill;
        const float last = before.fill > 0 ? before.ring_gate[at - 1] : 0.0f;
        after.ring_gate[at] = last + static_cast<float>(token.log_gate[h]);
        for (int r = 0; r < 8; ++r) {
            double projection = 0.0;
            for (int c = 0; c < 8; ++c) projection += old[(h * 8 + r) * 8 + c] * token.k[(h / 2) * 8 + c];
            const double u = token.beta[h] * (token.v[h * 8 + r] - std::exp(token.log_gate[h]) * projection);
            after.ring_u[at * 8 + r] = static_cast<float>(u);
        }
        for (int c = 0; c < 8; ++c) {
            after.ring_k[((h / 2) * capacity + before.fill) * 8 + c] =
                static_cast<float>(token.k[(h / 2) * 8 + c]);
        }
    }
    return after;
}

}  // namespace

TEST_CASE("a right launch passes") {
    const RowSnapshot recurrent = random_row(0, 0, true);
    CHECK(check_row(context(0), recurrent, after_launch(recurrent, 0)).failure == "");
    for (const bool flush : {false, true}) {
        for (int fill = 0; fill < kCapacity; ++fill) {
            CAPTURE(flush, fill);
            const RowSnapshot before = random_row(kCapacity, fill, flush);
            const Verification result =
                check_row(context(kCapacity), before, after_launch(before, kCapacity));
            CHECK(result.failure == "");
            CHECK(result.max_error < 1e-6);
        }
    }
}

TEST_CASE("every kind of fault is found and named") {
    const auto failure = [](bool flush, const std::function<void(RowSnapshot&)>& spoil) {
        const RowSnapshot before = random_row(kCapacity, 2, flush);
        RowSnapshot after = after_launch(before, kCapacity);
        spoil(after);
        return check_row(context(kCapacity), before, after).failure;
    };
    const auto off = [](float& x) { x += 0.1f; };
    CHECK_THAT(failure(false, [&](RowSnapshot& r) { off(r.out[31]); }),
               ContainsSubstring("row 5: the output"));
    CHECK_THAT(failure(false, [&](RowSnapshot& r) { r.out[0] = std::nanf(""); }),
               ContainsSubstring("the output"));
    CHECK_THAT(failure(false, [&](RowSnapshot& r) { off(r.ring_k[2 * 8]); }),
               ContainsSubstring("the new key"));
    CHECK_THAT(failure(false, [&](RowSnapshot& r) { off(r.ring_u[2 * 8]); }), ContainsSubstring("the new u"));
    CHECK_THAT(failure(false, [&](RowSnapshot& r) { off(r.ring_gate[2]); }),
               ContainsSubstring("the new log gate"));
    CHECK_THAT(failure(true, [&](RowSnapshot& r) { off(r.state[255]); }), ContainsSubstring("the state"));
    CHECK_THAT(failure(false, [&](RowSnapshot& r) { off(r.state[255]); }),
               ContainsSubstring("without a flush"));
    // A flush that did not happen.
    CHECK_THAT(failure(true, [&](RowSnapshot& r) { r.state = random_row(kCapacity, 2, true).state; }),
               ContainsSubstring("the state"));
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
