// The reference against properties of the recurrence that need no second implementation.
#include <cmath>
#include <random>

#include "kernels/reference/gdn.hpp"
#include "tests/support/catch.hpp"

namespace kvsim::reference {
namespace {

const LinearShape kShape{Family::kGdn, 2, 4, 8, 6, StateFormat::kFp32};

struct Stream {
    std::mt19937_64 generator{7};
    std::normal_distribution<float> normal;
    std::vector<float> a_log = std::vector<float>(4, -1.0f), dt_bias = std::vector<float>(4, 0.5f);

    std::vector<float> draw(std::size_t n) {
        std::vector<float> x(n);
        for (float& value : x) value = normal(generator);
        return x;
    }
    GdnToken token() {
        const auto qkv = draw(2 * 2 * 8 + 4 * 6), a = draw(4), b = draw(4);
        return prepare(kShape, {a_log, dt_bias}, {qkv, a, b});
    }
};

std::size_t state_size() {
    return std::size_t(kShape.v_heads) * kShape.v_dim * kShape.k_dim;
}
std::size_t out_size() {
    return std::size_t(kShape.v_heads) * kShape.v_dim;
}

TEST_CASE("prepared keys have unit norm, queries k_dim^-1/2, and gates lie in (0, 1)") {
    const GdnToken t = Stream().token();
    for (int h = 0; h < kShape.k_heads; ++h) {
        double k = 0, q = 0;
        for (int c = 0; c < kShape.k_dim; ++c) {
            k += t.k[h * kShape.k_dim + c] * t.k[h * kShape.k_dim + c];
            q += t.q[h * kShape.k_dim + c] * t.q[h * kShape.k_dim + c];
        }
        CHECK(k == Approx(1.0).epsilon(1e-5));
        CHECK(q == Approx(1.0 / kShape.k_dim).epsilon(1e-5));
    }
    for (int h = 0; h < kShape.v_heads; ++h) {
        CHECK(t.log_gate[h] < 0.0);
        CHECK(t.beta[h] > 0.0);
        CHECK(t.beta[h] < 1.0);
    }
}

TEST_CASE("the delta rule stores: with beta 1 and no decay, reading with the stored key returns the value") {
    GdnToken t = Stream().token();
    t.beta.assign(t.beta.size(), 1.0);
    t.log_gate.assign(t.log_gate.size(), 0.0);
    std::vector<double> state(state_size(), 0.3), out(out_size());
    recurrent_step(kShape, t, state, out);
    for (int hv = 0; hv < kShape.v_heads; ++hv) {
        const double* k = t.k.data() + hv / 2 * kShape.k_dim;
        for (int r = 0; r < kShape.v_dim; ++r) {
            double read = 0, norm = 0;
            for (int c = 0; c < kShape.k_dim; ++c) {
                read += state[(hv * kShape.v_dim + r) * kShape.k_dim + c] * k[c];
                norm += k[c] * k[c];
            }
            // |k|^2 is 1 up to the epsilon of l2norm, so the old content leaves a remainder of the same size.
            CHECK(read == Approx(t.v[hv * kShape.v_dim + r]).margin(1e-4));
            CHECK(norm == Approx(1.0).epsilon(1e-5));
        }
    }
}

TEST_CASE("with beta 0 nothing is stored and the state decays exponentially") {
    GdnToken t = Stream().token();
    t.v.assign(t.v.size(), 0.0);
    t.beta.assign(t.beta.size(), 0.0);
    std::vector<double> state(state_size(), 2.0), out(out_size());
    const int steps = 5;
    for (int i = 0; i < steps; ++i) recurrent_step(kShape, t, state, out);
    for (int hv = 0; hv < kShape.v_heads; ++hv) {
        const std::size_t first = std::size_t(hv) * kShape.v_dim * kShape.k_dim;
        CHECK(state[first] == Approx(2.0 * std::exp(steps * t.log_gate[hv])));
    }
}

TEST_CASE("buffered equals recurrent at every fill and flush pattern") {
    for (const int period : {1, 2, 3, 7, 50}) {
        Stream stream;
        std::vector<double> recurrent_state(state_size(), 0.1), buffered_state(state_size(), 0.1);
        std::vector<double> recurrent_out(out_size()), buffered_out(out_size());
        GdnRing ring;
        int flushes = 0;
        for (int i = 0; i < 200; ++i) {
            const GdnToken t = stream.token();
            const bool flush = i % period == period - 1;
            recurrent_step(kShape, t, recurrent_state, recurrent_out);
            buffered_step(kShape, t, flush, buffered_state, ring, buffered_out);
            REQUIRE(relative_error(buffered_out, recurrent_out) < 1e-11);
            if (!flush) continue;
            ++flushes;
            REQUIRE(ring.fill == 0);
            REQUIRE(relative_error(buffered_state, recurrent_state) < 1e-11);
        }
        CHECK(flushes == 200 / period);
    }
}

TEST_CASE("a NaN is an infinite error") {
    const std::vector<double> truth{1.0, 2.0}, broken{1.0, std::nan("")};
    CHECK(std::isinf(relative_error(broken, truth)));
    CHECK(relative_error(truth, truth) == 0.0);
}

}  // namespace
}  // namespace kvsim::reference
