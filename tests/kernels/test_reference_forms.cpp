// All forms of the reference give the recurrent form's outputs and states, whatever the phase of the ring.
#include <cmath>

#include "kernels/reference/gdn.hpp"
#include "tests/kernels/gdn_stream.hpp"
#include "tests/support/catch.hpp"

namespace kvsim::reference {
namespace {

constexpr LinearShape kSmall{Family::kGdn, 1, 2, 8, 6, StateFormat::kFp32};
constexpr double kTolerance = 1e-10;  // relative; sums of some hundred doubles
constexpr int kMostTokens = 9;

// A request served in buffered form beside its truth in recurrent form.
struct Pair {
    Pair(const LinearShape& layer, int capacity, std::uint64_t seed, double decay_low = 0.90)
        : shape(layer), stream(layer, seed, decay_low), cache(layer, capacity), truth(stream.state()) {
        cache.state = truth;
    }

    void decode(bool flush) {
        const LinearToken t = stream.token();
        std::vector<double> out(out_size(shape)), expected(out_size(shape));
        recurrent_step(shape, t, truth, expected);
        buffered_step(cache, t, flush, out);
        REQUIRE(relative_error(out, expected) < kTolerance);
        if (flush) require_state();
    }

    // Every output is compared, those of drafts that are rejected afterwards too.
    void verify(int count, int accepted, bool flush) {
        const auto drafts = stream.tokens(count);
        std::vector<double> out(count * out_size(shape)), expected(out.size());
        const auto states = verify_stored(shape, drafts, truth, expected);
        verify_buffered(cache, drafts, flush, out);
        REQUIRE(relative_error(out, expected) < kTolerance);
        if (flush) {
            REQUIRE(cache.fill == 0);
            require_state();
        }
        cache.fill += accepted;
        if (accepted > 0) truth = states[accepted - 1];
    }

    void require_state() { REQUIRE(relative_error(cache.state, truth) < kTolerance); }

    // Decodes, without a flush, up to `fill` records that begin at ring index `start`.
    void advance_to(int start, int fill) {
        cache.start = start;
        while (cache.fill < fill) decode(false);
    }

    LinearShape shape;
    GdnStream stream;
    BufferedCache cache;
    std::vector<double> truth;  // state after the accepted tokens
};

TEST_CASE("a flush is right at every fill and from every start of the ring") {
    for (const int capacity : {1, 2, 5, 16}) {
        for (int start = 0; start < capacity; ++start) {
            for (int fill = 0; fill < capacity; ++fill) {
                CAPTURE(capacity, start, fill);
                Pair p(kSmall, capacity, 1);
                p.advance_to(start, fill);
                p.decode(true);
                CHECK(p.cache.fill == 0);
                CHECK(p.cache.start == (start + fill + 1) % capacity);
                p.decode(capacity == 1);  // the gates count from the flush
            }
        }
    }
}

TEST_CASE("verify is right for every count, start, acceptance and several fills, with and without a flush") {
    const int capacity = 16;
    for (int count = 1; count <= kMostTokens; ++count) {
        for (int accepted = 0; accepted <= count; ++accepted) {
            for (const int fill : {0, 1, 4, capacity - count}) {
                for (const bool flush : {false, true}) {
                    // All starts are met over the cases; a multiplier prime to 16 spreads them.
                    const int start = (5 * count + 3 * accepted + 7 * fill + flush) % capacity;
                    CAPTURE(count, accepted, fill, flush, start);
                    Pair p(kSmall, capacity, 2);
                    p.advance_to(start, fill);
                    p.verify(count, accepted, flush);
                    CHECK(p.cache.fill == (flush ? 0 : fill) + accepted);
                    CHECK(p.cache.start == (flush ? start + fill : start) % capacity);
                    // What was accepted must be in the records, what was rejected must not.
                    if (p.cache.fill < capacity) p.decode(true);
                }
            }
        }
    }
}

TEST_CASE("verify wraps around at every start") {
    const int capacity = 12, fill = 3;
    for (int start = 0; start < capacity; ++start) {
        for (const bool flush : {false, true}) {
            CAPTURE(start, flush);
            Pair p(kSmall, capacity, 3);
            p.advance_to(start, fill);
            p.verify(kMostTokens, 4, flush);
            p.verify(5, 5, true);
            p.decode(true);
        }
    }
}

TEST_CASE("thousands of steps with random speculation, rejected drafts and flushes") {
    for (const double decay_low : {0.90, 0.998}) {
        const int capacity = 20;
        Pair p(kSmall, capacity, 4, decay_low);
        int rejected = 0, flushes = 0, wrapped = 0;
        for (int step = 0; step < 4000; ++step) {
            const int count = p.stream.pick(0, kMostTokens);  // 0: a plain decode step
            // The next step must find room for as many tokens as it may bring.
            const bool full = p.cache.fill + std::max(count, 1) + kMostTokens > capacity;
            const bool flush = full || p.stream.pick(0, 9) == 0;
            wrapped += p.cache.start + p.cache.fill + std::max(count, 1) > capacity;
            flushes += flush;
            if (count == 0) {
                p.decode(flush);
            } else {
                const int accepted = p.stream.pick(0, count);
                p.verify(count, accepted, flush);
                rejected += count - accepted;
            }
        }
        p.decode(true);
        CHECK(rejected > 5000);
        CHECK(flushes > 1000);
        CHECK(wrapped > 500);
    }
}

TEST_CASE("grouped heads read the key of their group in every form") {
    for (const auto& [k_heads, v_heads] : {std::pair{4, 16}, std::pair{16, 48}, std::pair{2, 2}}) {
        CAPTURE(k_heads, v_heads);
        Pair p({Family::kGdn, k_heads, v_heads, 8, 6, StateFormat::kFp32}, 16, 5);
        for (int i = 0; i < 6; ++i) p.decode(false);
        p.verify(5, 3, false);
        p.decode(true);
        p.verify(9, 2, false);
        p.verify(4, 4, true);
        p.decode(true);
    }
}

TEST_CASE("families without the delta rule share the forms") {
    Pair p({Family::kMamba2, 2, 8, 8, 6, StateFormat::kFp32}, 16, 6);
    for (int i = 0; i < 6; ++i) p.decode(false);
    p.verify(5, 3, false);
    p.decode(true);
    p.verify(4, 4, true);
    p.decode(true);
}

TEST_CASE("stored-states verify leaves its state alone and stores that of a recurrent run after each token") {
    GdnStream stream(kSmall, 7);
    const std::vector<double> before = stream.state();
    std::vector<double> state = before, step_out(out_size(kSmall));
    const auto tokens = stream.tokens(kMostTokens);
    std::vector<double> out(tokens.size() * out_size(kSmall));
    const auto states = verify_stored(kSmall, tokens, before, out);
    REQUIRE(states.size() == tokens.size());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        recurrent_step(kSmall, tokens[t], state, step_out);
        CHECK(states[t] == state);
        CHECK(
            std::equal(step_out.begin(), step_out.end(), out.begin() + std::ptrdiff_t(t * step_out.size())));
    }
    const auto rounded = verify_stored(kSmall, tokens, before, out, StateRounding::kBf16);
    store(state, StateRounding::kBf16);
    CHECK(rounded.back() == state);  // only what is stored is rounded
}

TEST_CASE("a record holds the raw key, the update divided by the key's norm, and gates since the flush") {
    Pair p(kSmall, 16, 8);
    p.cache.state.assign(p.cache.state.size(), 0.0);
    std::vector<double> out(out_size(kSmall));
    const auto tokens = p.stream.tokens(3);
    buffered_step(p.cache, tokens[0], false, out);
    buffered_step(p.cache, tokens[1], false, out);
    CHECK(std::equal(tokens[1].raw_k.begin(), tokens[1].raw_k.end(), p.cache.ring_k.begin() + kSmall.k_dim));
    // An empty state gives u = beta v; value head 1, row 2.
    CHECK(p.cache.ring_u[kSmall.v_dim + 2] ==
          Approx(tokens[0].key_scale[0] * tokens[0].beta[1] * tokens[0].v[kSmall.v_dim + 2]));
    CHECK(p.cache.ring_gate[2 + 1] == Approx(tokens[0].log_gate[1] + tokens[1].log_gate[1]));
    out.resize(out_size(kSmall));
    verify_buffered(p.cache, std::span(tokens).subspan(2), true, out);
    CHECK(p.cache.ring_gate[2 * 2 + 1] == tokens[2].log_gate[1]);
}

TEST_CASE("total forgetting in the middle of a ring gives no NaN and forgets") {
    for (const double log_gate : {kLogGateFloor, -60.0, 0.0}) {
        CAPTURE(log_gate);
        Pair p(kSmall, 16, 9);
        p.advance_to(3, 5);
        LinearToken t = p.stream.token();
        t.log_gate.assign(t.log_gate.size(), log_gate);
        std::vector<double> out(out_size(kSmall)), expected(out_size(kSmall));
        for (int i = 0; i < 2; ++i) {
            recurrent_step(kSmall, t, p.truth, expected);
            buffered_step(p.cache, t, false, out);
            REQUIRE(relative_error(out, expected) < kTolerance);
        }
        p.verify(4, 2, false);
        p.verify(4, 2, true);
        p.decode(true);
    }
}

TEST_CASE("more tokens than the ring has room for are refused") {
    Pair p(kSmall, 4, 10);
    p.advance_to(1, 4);
    std::vector<double> out(2 * out_size(kSmall));
    const auto tokens = p.stream.tokens(2);
    CHECK_THROWS_WITH(buffered_step(p.cache, tokens[0], true, out), ContainsSubstring("overdue"));
    p.cache.fill = 3;
    CHECK_THROWS_WITH(verify_buffered(p.cache, tokens, true, out), ContainsSubstring("no room"));
    CHECK_THROWS(BufferedCache(kSmall, 0));
}

}  // namespace
}  // namespace kvsim::reference
