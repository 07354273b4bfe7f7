// Inputs and recurrence of the reference against properties that need no second implementation.
#include <cmath>
#include <limits>

#include "kernels/reference/gdn.hpp"
#include "tests/kernels/gdn_stream.hpp"
#include "tests/support/catch.hpp"

namespace kvsim::reference {
namespace {

constexpr LinearShape kShape{Family::kGdn, 2, 4, 8, 6, StateFormat::kFp32};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMaxBf16 = 3.3895314e38f;

TEST_CASE("prepared keys have unit norm, queries k_dim^-1/2, and gates lie in (0, 1)") {
    const LinearToken t = GdnStream(kShape, 7).token();
    for (int h = 0; h < kShape.k_heads; ++h) {
        double k = 0, q = 0;
        for (int c = 0; c < kShape.k_dim; ++c) {
            const int i = h * kShape.k_dim + c;
            k += t.k[i] * t.k[i];
            q += t.q[i] * t.q[i];
            CHECK(t.k[i] == Approx(t.key_scale[h] * t.raw_k[i]).epsilon(1e-14));
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

TEST_CASE("packed inputs: query, key and value by position, gates by formula") {
    // One head of dimension 2: q = (3, 4), k = (6, 8), v = (5, -7).
    const LinearShape shape{Family::kGdn, 1, 1, 2, 2, StateFormat::kFp32};
    const std::vector<float> qkv{3, 4, 6, 8, 5, -7}, a{0.25f}, b{1.5f}, a_log{0.5f}, dt_bias{-1.0f};
    const LinearToken t = prepare(shape, {a_log, dt_bias}, {qkv, a, b});
    CHECK(t.q[0] == Approx(0.6 / std::sqrt(2.0)).epsilon(1e-6));
    CHECK(t.q[1] == Approx(0.8 / std::sqrt(2.0)).epsilon(1e-6));
    CHECK(t.k[0] == Approx(0.6).epsilon(1e-6));
    CHECK(t.raw_k == std::vector<double>{6, 8});
    CHECK(t.key_scale[0] == Approx(1.0 / std::sqrt(100.0 + 1e-6)).epsilon(1e-14));
    CHECK(t.v == std::vector<double>{5, -7});
    CHECK(t.log_gate[0] == Approx(-std::exp(0.5) * std::log(1.0 + std::exp(-0.75))).epsilon(1e-14));
    CHECK(t.beta[0] == Approx(1.0 / (1.0 + std::exp(-1.5))).epsilon(1e-14));
}

TEST_CASE("extreme gates are limits, not NaN") {
    const LinearShape shape{Family::kGdn, 1, 1, 2, 2, StateFormat::kFp32};
    const std::vector<float> qkv{3, 4, 6, 8, 5, -7};
    const auto gates = [&](float a, float b, float a_log, float dt_bias) {
        const std::vector<float> as{a}, bs{b}, a_logs{a_log}, biases{dt_bias};
        return prepare(shape, {a_logs, biases}, {qkv, as, bs});
    };
    for (const float a_log : {-80.0f, 0.0f, 80.0f}) {
        for (const float large : {kMaxBf16, kInfinity}) {
            CAPTURE(a_log, large);
            CHECK(gates(-large, 0, a_log, 0).log_gate[0] == 0.0);
            CHECK(gates(0, large, a_log, 0).beta[0] == 1.0);
            CHECK(gates(0, -large, a_log, 0).beta[0] == 0.0);
            CHECK(std::isfinite(gates(large, 0, a_log, 0).log_gate[0]));
        }
    }
    CHECK(gates(kInfinity, 0, 0, 0).log_gate[0] == kLogGateFloor);
    CHECK(gates(99.0f, 0, 0, 0).log_gate[0] == Approx(-99.0));
    CHECK(std::isnan(gates(std::nanf(""), 0, 0, 0).log_gate[0]));
}

TEST_CASE("a zero key stores nothing and gives no NaN") {
    const LinearShape shape{Family::kGdn, 1, 1, 2, 2, StateFormat::kFp32};
    const std::vector<float> qkv{3, 4, 0, 0, 5, -7}, zero{0};
    const LinearToken t = prepare(shape, {zero, zero}, {qkv, zero, zero});
    CHECK(t.key_scale[0] == Approx(1e3).epsilon(1e-14));
    std::vector<double> state(4, 2.0), out(2);
    recurrent_step(shape, t, state, out);
    for (const double x : state) CHECK(x == Approx(2.0 * std::exp(-std::log(2.0))));
}

TEST_CASE("the delta rule stores: with beta 1 and no decay, reading with the stored key returns the value") {
    LinearToken t = GdnStream(kShape, 7).token();
    t.beta.assign(t.beta.size(), 1.0);
    t.log_gate.assign(t.log_gate.size(), 0.0);
    std::vector<double> state(out_size(kShape) * kShape.k_dim, 0.3), out(out_size(kShape));
    recurrent_step(kShape, t, state, out);
    for (int hv = 0; hv < kShape.v_heads; ++hv) {
        const double* k = t.k.data() + hv / 2 * kShape.k_dim;
        for (int r = 0; r < kShape.v_dim; ++r) {
            double read = 0;
            for (int c = 0; c < kShape.k_dim; ++c) {
                read += state[(hv * kShape.v_dim + r) * kShape.k_dim + c] * k[c];
            }
            // |k|^2 is 1 up to the epsilon of l2norm, so the old content leaves a remainder of the same size.
            CHECK(read == Approx(t.v[hv * kShape.v_dim + r]).margin(1e-4));
        }
    }
}

TEST_CASE("with beta 0 nothing is stored and the state decays exponentially") {
    LinearToken t = GdnStream(kShape, 7).token();
    t.beta.assign(t.beta.size(), 0.0);
    std::vector<double> state(out_size(kShape) * kShape.k_dim, 2.0), out(out_size(kShape));
    const int steps = 5;
    for (int i = 0; i < steps; ++i) recurrent_step(kShape, t, state, out);
    for (int hv = 0; hv < kShape.v_heads; ++hv) {
        const std::size_t first = std::size_t(hv) * kShape.v_dim * kShape.k_dim;
        CHECK(state[first] == Approx(2.0 * std::exp(steps * t.log_gate[hv])));
    }
}

TEST_CASE("without the delta rule the update ignores the state: S = gate S + beta v k^T") {
    LinearShape shape = kShape;
    shape.family = Family::kMamba2;
    const LinearToken t = GdnStream(shape, 7).token();
    std::vector<double> state(out_size(shape) * shape.k_dim, 2.0), out(out_size(shape));
    recurrent_step(shape, t, state, out);
    const int hv = 3, r = 4, c = 5;  // value head 3 reads key head 1
    CHECK(state[(hv * shape.v_dim + r) * shape.k_dim + c] ==
          Approx(2.0 * std::exp(t.log_gate[hv]) +
                 t.beta[hv] * t.v[hv * shape.v_dim + r] * t.k[shape.k_dim + c]));
}

TEST_CASE("a NaN is an infinite error") {
    const std::vector<double> truth{1.0, 2.0}, broken{1.0, std::nan("")};
    CHECK(std::isinf(relative_error(broken, truth)));
    CHECK(relative_error(truth, truth) == 0.0);
}

}  // namespace
}  // namespace kvsim::reference
