// What storage formats cost in accuracy: the forms with rounded states, records and outputs against double,
// over thousands of tokens. Arithmetic is exact here, so these are floors for the kernels.
//
// Error of a step = ||o - truth|| / ||truth|| over all its heads and tokens, averaged over 256 steps.
// Rounding the output to bf16 makes 1.7e-3 of it.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "kernels/reference/gdn.hpp"
#include "tests/kernels/gdn_stream.hpp"
#include "tests/support/catch.hpp"

namespace kvsim::reference {
namespace {

constexpr int kWindow = 256;
constexpr int kMostTokens = 9;

// Over windows of kWindow steps.
struct Drift {
    double first = 0.0, last = 0.0, largest = 0.0;

    void add(double window) {
        if (largest == 0.0) first = window;
        last = window;
        largest = std::max(largest, window);
    }
};

// One way to serve a request, followed beside the truth. The output's error is averaged over a window, the
// state's is that at the end of a window.
struct Candidate {
    Candidate(std::string what, const LinearShape& layer, int capacity, Storage storage,
              const std::vector<double>& start)
        : name(std::move(what)), cache(layer, capacity, storage) {
        cache.state = start;
        store(cache.state, storage.state);
    }

    void count_output(std::vector<double> out, std::span<const double> truth) {
        for (double& x : out) x = round_to_bf16(x);
        sum += relative_error(out, truth);
    }
    void end_window(std::span<const double> state_truth) {
        BufferedCache flushed = cache;  // the records count as state
        verify_buffered(flushed, {}, true, {});
        output.add(sum / kWindow);
        state.add(relative_error(flushed.state, state_truth));
        sum = 0.0;
    }
    void print(double decay_low) const {
        std::fprintf(stderr, "  %-26s decay %.3f to 1: output %.2e to %.2e, state %.2e to %.2e\n",
                     name.c_str(), decay_low, output.first, output.last, state.first, state.last);
    }

    std::string name;
    BufferedCache cache;
    double sum = 0.0;
    Drift output, state;
};

void require_small(const Candidate& c, double output_limit, double state_limit) {
    INFO(c.name);
    CHECK(c.output.largest <= output_limit);
    CHECK(c.state.largest <= state_limit);
}
// Not of a state with fp32 u: its error starts near zero and takes some 1,000 tokens of decay to settle.
void require_flat_state(const Candidate& c) {
    INFO(c.name);
    CHECK(c.state.last <= 1.2 * c.state.first);
}
void require_no_drift(const Candidate& c) {
    INFO(c.name);
    CHECK(c.output.last <= 1.2 * c.output.first);
}

TEST_CASE("errors of the storage formats over 4096 tokens, a flush every 16") {
    constexpr LinearShape layer{Family::kGdn, 1, 2, 128, 128, StateFormat::kFp32};
    constexpr int tokens = 4096, period = 16;
    using S = StateRounding;
    using R = RecordRounding;
    for (const double decay_low : {0.90, 0.998}) {
        CAPTURE(decay_low);
        GdnStream stream(layer, 20, decay_low);
        std::vector<double> truth = stream.state(), expected(out_size(layer)), out(out_size(layer));
        Candidate recurrent_bf16("recurrent, bf16", layer, period, {S::kBf16, R::kNone}, truth);
        Candidate fp32("buffered, fp32", layer, period, {S::kFp32, R::kBf16}, truth);
        Candidate fp32_u("buffered, fp32, fp32 u", layer, period, {S::kFp32, R::kFp32U}, truth);
        Candidate bf16("buffered, bf16", layer, period, {S::kBf16, R::kBf16}, truth);
        Candidate split("buffered, split", layer, period, {S::kSplit, R::kBf16}, truth);
        Candidate split_u("buffered, split, fp32 u", layer, period, {S::kSplit, R::kFp32U}, truth);
        const std::vector<Candidate*> all{&recurrent_bf16, &fp32, &fp32_u, &bf16, &split, &split_u};
        for (int t = 0; t < tokens; ++t) {
            const LinearToken token = stream.token();
            recurrent_step(layer, token, truth, expected);
            for (Candidate* c : all) {
                if (c == &recurrent_bf16) {
                    recurrent_step(layer, token, c->cache.state, out);
                    store(c->cache.state, S::kBf16);
                } else {
                    buffered_step(c->cache, token, t % period == period - 1, out);
                }
                c->count_output(out, expected);
                if (t % kWindow == kWindow - 1) c->end_window(truth);
            }
        }
        for (const Candidate* c : all) c->print(decay_low);
        for (const Candidate* c : {&fp32, &split, &split_u}) {
            require_small(*c, 4e-3, 3e-3);
            require_no_drift(*c);
        }
        require_flat_state(fp32);
        require_flat_state(split);
        require_small(fp32_u, 2e-3, 1e-5);
        require_no_drift(fp32_u);
        require_small(bf16, 6e-3, 6e-3);
        // A buffered bf16 state is rounded once in 16 tokens, a recurrent one at each.
        CHECK(bf16.state.last < 0.5 * recurrent_bf16.state.last);
        CHECK(split.state.last < bf16.state.last);
    }
}

TEST_CASE("errors do not grow over 2048 steps of speculation with rejected drafts and random flushes") {
    constexpr LinearShape layer{Family::kGdn, 1, 1, 128, 128, StateFormat::kFp32};
    constexpr int steps = 2048, capacity = 24;
    constexpr double decay_low = 0.998;
    GdnStream stream(layer, 21, decay_low);
    std::vector<double> truth = stream.state();
    Candidate fp32("verify, fp32", layer, capacity, {StateRounding::kFp32, RecordRounding::kBf16}, truth);
    Candidate split("verify, split", layer, capacity, {StateRounding::kSplit, RecordRounding::kBf16}, truth);
    int rejected = 0, flushes = 0;
    for (int step = 0; step < steps; ++step) {
        const int count = stream.pick(1, kMostTokens), accepted = stream.pick(0, count);
        const bool flush = fp32.cache.fill + count + kMostTokens > capacity || stream.pick(0, 19) == 0;
        const auto drafts = stream.tokens(count);
        std::vector<double> expected(count * out_size(layer)), out(expected.size());
        const auto states = verify_stored(layer, drafts, truth, expected);
        if (accepted > 0) truth = states[accepted - 1];
        rejected += count - accepted;
        flushes += flush;
        for (Candidate* c : {&fp32, &split}) {
            verify_buffered(c->cache, drafts, flush, out);
            c->cache.fill += accepted;
            c->count_output(out, expected);
            if (step % kWindow == kWindow - 1) c->end_window(truth);
        }
    }
    CHECK(rejected > 4000);
    CHECK(flushes > 400);
    for (const Candidate* c : {&fp32, &split}) {
        c->print(decay_low);
        require_small(*c, 4e-3, 3e-3);
        require_no_drift(*c);
        require_flat_state(*c);
    }
}

}  // namespace
}  // namespace kvsim::reference
