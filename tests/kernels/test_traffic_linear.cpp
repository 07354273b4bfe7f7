// The byte model against its closed forms and the published table of state and record sizes.
#include <cmath>
#include <string>

#include "kernels/traffic_linear.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

LinearShape gdn(int k_heads, int v_heads) {
    return {Family::kGdn, k_heads, v_heads, 128, 128, StateFormat::kFp32};
}
LinearShape mamba2(int heads, int groups) {
    return {Family::kMamba2, groups, heads, 128, 64, StateFormat::kFp32};
}

// One head, fp32 state, bf16 q, k, v, no fp32 gate record: lightning with one head has exactly the paper's
// bytes.
LinearShape paper_head(int d) {
    return {Family::kLightning, 1, 1, d, d, StateFormat::kFp32};
}

std::int64_t cycle_bytes(const LinearShape& s, int m, bool separate_flush) {
    std::int64_t sum = 0;
    for (int fill = 0; fill < m; ++fill) {
        const LinearTraffic t = linear_traffic(
            s, Form::kBuffered, {1, 1, fill, fill == m - 1 ? 1 : 0, fill == m - 1 ? m : 0}, separate_flush);
        sum += t.total() - t.io_read - t.io_write;
    }
    return sum;
}

TEST_CASE("state bytes, record bytes, break-even context and best length of every model") {
    struct Row {
        const char* model;
        LinearShape shape;
        double state_mib;
        std::int64_t record;
        double n_star, m_star_separate, m_star_fused;
    };
    const Row rows[] = {
        {"Qwen3.5-0.8B/2B", gdn(16, 16), 1, 8256, 127, 22.5, 15.9},
        {"Qwen3.5-4B/9B/35B", gdn(16, 32), 2, 12416, 169, 26.0, 18.4},
        {"Qwen3.5-27B", gdn(16, 48), 3, 16576, 190, 27.6, 19.5},
        {"Qwen3.5-122B/397B", gdn(16, 64), 4, 20736, 202, 28.4, 20.1},
        {"Nemotron-3-Nano-30B", mamba2(64, 8), 2, 10496, 200, 28.3, 20.0},
        {"Nemotron-3-Super", mamba2(128, 8), 4, 18944, 221, 29.8, 21.0},
        {"Kimi-Linear", {Family::kKda, 32, 32, 128, 128, StateFormat::kFp32}, 2, 32768, 64, 16.0, 11.3},
    };
    for (const Row& row : rows) {
        INFO(row.model);
        CHECK(static_cast<double>(state_bytes(row.shape)) == row.state_mib * 1024 * 1024);
        CHECK(record_bytes(row.shape) == row.record);
        CHECK(direct_break_even(row.shape) == Approx(row.n_star).margin(0.5));
        CHECK(best_buffer_length(row.shape, 2) == Approx(row.m_star_separate).margin(0.05));
        CHECK(best_buffer_length(row.shape, 1) == Approx(row.m_star_fused).margin(0.05));
    }
}

TEST_CASE("one head: the best length is 2 sqrt(d) and direct beats the state below d tokens") {
    for (const int d : {64, 128, 256}) {
        const LinearShape s = paper_head(d);
        CHECK(best_buffer_length(s, 2) == Approx(2.0 * std::sqrt(double(d))));
        CHECK(direct_break_even(s) == Approx(double(d)));
        // The same from the launches themselves: direct reads d records where another form reads the state.
        const auto direct = [&](int context) {
            return linear_traffic(s, Form::kDirect, {1, 1, context, 0}).buffer_read;
        };
        CHECK(direct(d - 1) < state_bytes(s));
        CHECK(direct(d + 1) > state_bytes(s));
    }
}

TEST_CASE("the discrete minimum over cycles of launches stands at the closed form's length") {
    for (const bool separate : {false, true}) {
        const LinearShape s = gdn(16, 32);
        int best = 1;
        for (int m = 2; m <= 128; ++m) {
            if (cycle_bytes(s, m, separate) * best < cycle_bytes(s, best, separate) * m) best = m;
        }
        CHECK(std::abs(best - best_buffer_length(s, separate ? 2 : 1)) <= 1.0);
    }
}

TEST_CASE("a cycle of launches moves S + c S/m + b (m-1)/2 + b per token") {
    const LinearShape s = gdn(16, 48);
    for (const int m : {1, 2, 16, 33}) {
        CHECK(double(cycle_bytes(s, m, false)) / m == Approx(buffered_cycle_bytes(s, m, 1)));
        CHECK(double(cycle_bytes(s, m, true)) / m == Approx(buffered_cycle_bytes(s, m, 2)));
    }
}

TEST_CASE("verify: the gain of records over stored states tends to (T + 1) / 3") {
    // As the state grows against everything else: every verify commits, flush in a kernel of its own.
    for (const int tokens : {5, 8}) {
        const LinearShape s = paper_head(1 << 14);
        const LinearTraffic stored = linear_traffic(s, Form::kVerifyStored, {1, tokens, 0, 0});
        const LinearTraffic buffered =
            linear_traffic(s, Form::kVerifyBuffered, {1, tokens, 0, 1, tokens}, true);
        CHECK(double(stored.total()) / double(buffered.total()) == Approx((tokens + 1) / 3.0).epsilon(0.01));
    }
}

TEST_CASE("inputs and outputs of a GDN 16/32 token are 24.7 KB, 5 % of a verify of five") {
    const LinearShape s = gdn(16, 32);
    CHECK(token_input_bytes(s) + token_output_bytes(s) == 16384 + 128 + 8192);
    const LinearTraffic t = linear_traffic(s, Form::kVerifyBuffered, {1, 5, 8, 0});
    CHECK(double(t.io_read + t.io_write) / double(t.total()) == Approx(0.05).margin(0.01));
}

TEST_CASE("buffering alone saves 42 to 44 % of a cycle's bytes at the best lengths") {
    const LinearShape s = gdn(16, 32);
    const double recurrent = 2.0 * double(state_bytes(s));
    const double best = buffered_cycle_bytes(s, std::round(best_buffer_length(s, 1)), 1);
    CHECK(1.0 - best / recurrent > 0.42);
    CHECK(1.0 - best / recurrent < 0.45);
}

TEST_CASE("FLOPs of a flush count the records that are folded, not the mean of all rows") {
    const LinearShape s = gdn(16, 32);
    const std::int64_t n = 32 * 128 * 128;
    const LinearTraffic mixed = linear_traffic(s, Form::kBuffered, {16, 16, 120, 1, 16});
    const LinearTraffic none = linear_traffic(s, Form::kBuffered, {16, 16, 120, 0, 0});
    CHECK(mixed.flops - none.flops == n + 16 * 2 * n);
    CHECK(mixed.state_write == state_bytes(s));
    CHECK(mixed.buffer_read == none.buffer_read);
}

TEST_CASE("FLOPs of a verify: every new token meets all records and the new tokens before it") {
    // Two rows of five tokens, 3 and 8 records: 5 x 11 + 2 x (4 + 3 + 2 + 1) meetings; a meeting takes four
    // FLOPs per key channel and four per value channel, a token four per element of the state.
    const LinearShape s = gdn(16, 32);
    const std::int64_t meeting = 4 * 16 * 128 + 4 * 32 * 128;
    const LinearTraffic t = linear_traffic(s, Form::kVerifyBuffered, {2, 10, 11, 0});
    CHECK(t.flops == 10 * 4 * 32 * 128 * 128 + (5 * 11 + 2 * 10) * meeting);
    // One token is a decode.
    CHECK(linear_traffic(s, Form::kVerifyBuffered, {2, 2, 11, 0}).flops ==
          linear_traffic(s, Form::kBuffered, {2, 2, 11, 0}).flops);
}

TEST_CASE(
    "FLOPs without the delta rule: u does not depend on the state, which is asked for the output alone") {
    // An element of the state: decay, 2 for its rank-1 update, 2 for S q; with the delta rule 2 more for S k.
    const std::int64_t n = 128 * 64 * 128;
    for (const Form form : {Form::kRecurrent, Form::kVerifyStored}) {
        CHECK(linear_traffic(mamba2(128, 8), form, {3, 6, 0, 0}).flops == 6 * 5 * n);
        CHECK(linear_traffic(gdn(16, 32), form, {3, 6, 0, 0}).flops == 6 * 7 * 32 * 128 * 128);
    }
    // Two tokens and seven records each: B_i.C per group of 128 states, then x_i times it per head of 64.
    const LinearTraffic t = linear_traffic(mamba2(128, 8), Form::kBuffered, {2, 2, 14, 0});
    CHECK(t.flops == 2 * 2 * n + 14 * (2 * 8 * 128 + 2 * 128 * 64));
}

TEST_CASE("u in fp32 costs two more bytes per value channel of a record") {
    // GDN 16/32 heads: 12,416 bytes hold 32 x 128 values of u.
    LinearShape s = gdn(16, 32);
    s.records = RecordFormat::kFp32U;
    CHECK(record_bytes(s) == 12416 + 2 * 32 * 128);
    const LinearTraffic t = linear_traffic(s, Form::kVerifyBuffered, {1, 5, 8, 0});
    CHECK(t.buffer_read == 8 * 20608);
    CHECK(t.buffer_write == 5 * 20608);
}

TEST_CASE("decode folds the new token's record, verify the committed ones alone") {
    CHECK(folded_records(Form::kBuffered, 15) == 16);
    CHECK(folded_records(Form::kVerifyBuffered, 11) == 11);
}

TEST_CASE("a split state is read by half and written whole") {
    LinearShape s = gdn(16, 32);
    s.state = StateFormat::kSplit;
    const std::int64_t S = state_bytes(s);
    const LinearTraffic decode = linear_traffic(s, Form::kBuffered, {4, 4, 20, 0});
    CHECK(decode.state_read == 2 * S);
    const LinearTraffic flush = linear_traffic(s, Form::kBuffered, {4, 4, 20, 4, 24});
    CHECK(flush.state_read == 4 * S);
    CHECK(flush.state_write == 4 * S);
}

}  // namespace
}  // namespace kvsim
