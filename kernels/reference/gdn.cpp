#include "kernels/reference/gdn.hpp"

#include <cmath>
#include <limits>

namespace kvsim::reference {
namespace {

constexpr double kNormEpsilon = 1e-6;  // as in the serving engines' l2norm: x / sqrt(sum x^2 + eps)

double softplus(double x) {
    return x > 20.0 ? x : std::log1p(std::exp(x));
}

double dot(std::span<const double> a, std::span<const double> b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Copies heads x dim values, each head scaled to norm `norm`.
std::vector<double> normalise(std::span<const float> x, int heads, int dim, double norm) {
    std::vector<double> y(x.begin(), x.end());
    for (int h = 0; h < heads; ++h) {
        const std::span<double> head(y.data() + std::size_t(h) * dim, dim);
        const double scale = norm / std::sqrt(dot(head, head) + kNormEpsilon);
        for (double& value : head) value *= scale;
    }
    return y;
}

// Views of one value head.
struct Head {
    std::span<const double> q, k, v;
    double log_gate, beta;
};
Head head_of(const LinearShape& s, const GdnToken& t, int hv) {
    const int kh = hv / (s.v_heads / s.k_heads);
    return {std::span(t.q).subspan(std::size_t(kh) * s.k_dim, s.k_dim),
            std::span(t.k).subspan(std::size_t(kh) * s.k_dim, s.k_dim),
            std::span(t.v).subspan(std::size_t(hv) * s.v_dim, s.v_dim), t.log_gate[hv], t.beta[hv]};
}

}  // namespace

GdnToken prepare(const LinearShape& s, const GdnWeights& w, const GdnInput& in) {
    const std::size_t keys = std::size_t(s.k_heads) * s.k_dim;
    GdnToken t;
    t.q = normalise(in.qkv.subspan(0, keys), s.k_heads, s.k_dim, 1.0 / std::sqrt(double(s.k_dim)));
    t.k = normalise(in.qkv.subspan(keys, keys), s.k_heads, s.k_dim, 1.0);
    const auto v = in.qkv.subspan(2 * keys);
    t.v.assign(v.begin(), v.end());
    for (int h = 0; h < s.v_heads; ++h) {
        t.log_gate.push_back(-std::exp(double(w.a_log[h])) * softplus(double(in.a[h]) + w.dt_bias[h]));
        t.beta.push_back(1.0 / (1.0 + std::exp(-double(in.b[h]))));
    }
    return t;
}

void recurrent_step(const LinearShape& s, const GdnToken& token, std::span<double> state,
                    std::span<double> out) {
    for (int hv = 0; hv < s.v_heads; ++hv) {
        const Head h = head_of(s, token, hv);
        const double gate = std::exp(h.log_gate);
        for (int r = 0; r < s.v_dim; ++r) {
            const std::span<double> row = state.subspan((std::size_t(hv) * s.v_dim + r) * s.k_dim, s.k_dim);
            for (double& x : row) x *= gate;
            const double u = h.beta * (h.v[r] - dot(row, h.k));
            for (int c = 0; c < s.k_dim; ++c) row[c] += u * h.k[c];
            out[std::size_t(hv) * s.v_dim + r] = dot(row, h.q);
        }
    }
}

void buffered_step(const LinearShape& s, const GdnToken& token, bool flush, std::span<double> state,
                   GdnRing& ring, std::span<double> out) {
    const int n = ring.fill;
    const std::size_t keys = std::size_t(s.k_heads) * s.k_dim;
    const std::size_t values = std::size_t(s.v_heads) * s.v_dim;
    ring.k.insert(ring.k.end(), token.k.begin(), token.k.end());
    ring.u.resize((n + 1) * values);
    ring.log_gate.resize(std::size_t(n + 1) * s.v_heads);
    ring.fill = n + 1;

    for (int hv = 0; hv < s.v_heads; ++hv) {
        const Head h = head_of(s, token, hv);
        const int kh = hv / (s.v_heads / s.k_heads);
        const auto key = [&](int i) {
            return std::span(ring.k).subspan(i * keys + std::size_t(kh) * s.k_dim, s.k_dim);
        };
        const auto gate_sum = [&](int i) -> double& {
            return ring.log_gate[std::size_t(i) * s.v_heads + hv];
        };
        gate_sum(n) = (n > 0 ? gate_sum(n - 1) : 0.0) + h.log_gate;
        const double state_decay = std::exp(gate_sum(n));
        // What is left of record i at the new token, and its overlap with the new key and query.
        std::vector<double> decay(n + 1), with_k(n + 1), with_q(n + 1);
        for (int i = 0; i <= n; ++i) {
            decay[i] = std::exp(gate_sum(n) - gate_sum(i));
            with_k[i] = dot(key(i), h.k);
            with_q[i] = dot(key(i), h.q);
        }
        for (int r = 0; r < s.v_dim; ++r) {
            const std::span<double> row = state.subspan((std::size_t(hv) * s.v_dim + r) * s.k_dim, s.k_dim);
            const auto u = [&](int i) -> double& {
                return ring.u[i * values + std::size_t(hv) * s.v_dim + r];
            };
            double sk = state_decay * dot(row, h.k);
            double sq = state_decay * dot(row, h.q);
            for (int i = 0; i < n; ++i) {
                sk += decay[i] * u(i) * with_k[i];
                sq += decay[i] * u(i) * with_q[i];
            }
            u(n) = h.beta * (h.v[r] - sk);
            out[std::size_t(hv) * s.v_dim + r] = sq + u(n) * with_q[n];
            if (!flush) continue;
            for (int c = 0; c < s.k_dim; ++c) row[c] *= state_decay;
            for (int i = 0; i <= n; ++i) {
                for (int c = 0; c < s.k_dim; ++c) row[c] += decay[i] * u(i) * key(i)[c];
            }
        }
    }
    if (flush) ring = GdnRing{};
}

double relative_error(std::span<const double> value, std::span<const double> truth) {
    double difference = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
        if (!std::isfinite(value[i])) return std::numeric_limits<double>::infinity();
        difference += (value[i] - truth[i]) * (value[i] - truth[i]);
        norm += truth[i] * truth[i];
    }
    return std::sqrt(difference / norm);
}

}  // namespace kvsim::reference
