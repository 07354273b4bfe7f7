#include "kernels/reference/gdn.hpp"

#include <cmath>

namespace kvsim::reference {
namespace {

constexpr double kNormEpsilon = 1e-6;  // as in the serving engines' l2norm: x / sqrt(sum x^2 + eps)

double softplus(double x) {
    return x > 20.0 ? x : std::log1p(std::exp(x));
}

// 1 / |x| of each of `heads` heads.
std::vector<double> inverse_norms(std::span<const float> x, int heads, int dim) {
    std::vector<double> scales;
    for (int h = 0; h < heads; ++h) {
        double sum = 0.0;
        for (const float value : x.subspan(std::size_t(h) * dim, dim)) sum += double(value) * value;
        scales.push_back(1.0 / std::sqrt(sum + kNormEpsilon));
    }
    return scales;
}

std::vector<double> scaled(std::span<const float> x, std::span<const double> head_scales, int dim,
                           double factor) {
    std::vector<double> y(x.begin(), x.end());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= head_scales[i / dim] * factor;
    return y;
}

}  // namespace

LinearToken prepare(const LinearShape& s, const GdnWeights& w, const GdnInput& in) {
    const std::size_t keys = std::size_t(s.k_heads) * s.k_dim;
    const auto q = in.qkv.subspan(0, keys), k = in.qkv.subspan(keys, keys), v = in.qkv.subspan(2 * keys);
    LinearToken t;
    t.q = scaled(q, inverse_norms(q, s.k_heads, s.k_dim), s.k_dim, 1.0 / std::sqrt(double(s.k_dim)));
    t.key_scale = inverse_norms(k, s.k_heads, s.k_dim);
    t.k = scaled(k, t.key_scale, s.k_dim, 1.0);
    t.raw_k.assign(k.begin(), k.end());
    t.v.assign(v.begin(), v.end());
    for (int h = 0; h < s.v_heads; ++h) {
        const double log_gate = -std::exp(double(w.a_log[h])) * softplus(double(in.a[h]) + w.dt_bias[h]);
        t.log_gate.push_back(log_gate < kLogGateFloor ? kLogGateFloor : log_gate);  // keeps a NaN
        t.beta.push_back(1.0 / (1.0 + std::exp(-double(in.b[h]))));
    }
    return t;
}

}  // namespace kvsim::reference
