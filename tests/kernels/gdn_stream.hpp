// Random tokens of a GDN layer for tests of the reference: what a convolution and two projections would give.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/reference/gdn.hpp"
#include "kernels/reference/rounding.hpp"

namespace kvsim::reference {

class GdnStream {
  public:
    // The decay of a token is drawn from [decay_low, 1]; all inputs are bf16 values.
    GdnStream(const LinearShape& shape, std::uint64_t seed, double decay_low = 0.90)
        : shape_(shape), generator_(seed), decay_(decay_low, 1.0) {}

    LinearToken token() {
        const std::vector<float> weights(shape_.v_heads,
                                         0.0f);  // A_log and dt_bias: the gate is exp(-softplus(a))
        std::vector<float> qkv(2 * shape_.k_heads * shape_.k_dim + shape_.v_heads * shape_.v_dim);
        std::vector<float> a(shape_.v_heads), b(shape_.v_heads);
        for (float& x : qkv) x = bf16(normal_(generator_));
        for (float& x : b) x = bf16(normal_(generator_));
        // softplus(a) = -log(decay)
        for (float& x : a) x = bf16(std::log(1.0 / std::min(decay_(generator_), 1.0 - 1e-6) - 1.0));
        return prepare(shape_, {weights, weights}, {qkv, a, b});
    }
    std::vector<LinearToken> tokens(int count) {
        std::vector<LinearToken> result;
        for (int i = 0; i < count; ++i) result.push_back(token());
        return result;
    }
    std::vector<double> state() {
        std::vector<double> x(std::size_t(shape_.v_heads) * shape_.v_dim * shape_.k_dim);
        for (double& value : x) value = 0.1 * normal_(generator_);
        return x;
    }
    // An integer in [low, high].
    int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator_); }

  private:
    static float bf16(double x) { return static_cast<float>(round_to_bf16(x)); }

    LinearShape shape_;
    std::mt19937_64 generator_;
    std::normal_distribution<double> normal_;
    std::uniform_real_distribution<double> decay_;
};

inline std::size_t out_size(const LinearShape& s) {
    return std::size_t(s.v_heads) * s.v_dim;
}

}  // namespace kvsim::reference
