// The matrices of every part against closed forms, written here in one line each, over random sizes.
#include "sim/model/parameters.hpp"

#include "sim/base/random.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/models.hpp"

using namespace kvsim;

namespace {

std::int64_t stored(const std::vector<WeightMatrix>& list) {
    std::int64_t sum = 0;
    for (const WeightMatrix& m : list) sum += m.copies * m.rows * m.cols;
    return sum;
}
std::int64_t active(const std::vector<WeightMatrix>& list) {
    std::int64_t sum = 0;
    for (const WeightMatrix& m : list) sum += m.active * m.rows * m.cols;
    return sum;
}

class Sizes {
  public:
    int operator()(int most) { return 1 + static_cast<int>(stream_.uniform() * most); }

  private:
    RandomStream stream_{7, "sizes"};
};

}  // namespace

TEST_CASE("linear mixers of random sizes", "[model]") {
    Sizes size;
    for (int i = 0; i < 100; ++i) {
        LinearMixer m;
        m.k_heads = size(16);
        m.v_heads = m.k_heads * size(4);
        m.k_dim = size(200);
        m.v_dim = size(200);
        m.conv_kernel = size(8);
        const std::int64_t h = size(6000);
        const std::int64_t keys = std::int64_t{m.k_heads} * m.k_dim,
                           values = std::int64_t{m.v_heads} * m.v_dim;
        const std::int64_t c = 2 * keys + values, n = m.v_heads;

        m.family = Family::kGdn;
        CHECK(stored(weights(m, h)) ==
              h * (2 * keys + 2 * values) + 2 * h * n + c * m.conv_kernel + 2 * n + m.v_dim + values * h);
        m.family = Family::kMamba2;
        m.conv_bias = true;
        const std::int64_t mamba =
            h * (values + c + n) + (m.conv_kernel + 1) * c + 3 * n + values + values * h;
        CHECK(stored(weights(m, h)) == mamba);
        m.gated_norm = false;
        CHECK(stored(weights(m, h)) == mamba - values);

        const LinearMixer lightning{"linear", Family::kLightning, m.k_heads, m.k_heads, m.k_dim, m.v_dim, 0};
        const std::int64_t out = std::int64_t{m.k_heads} * m.v_dim;
        CHECK(stored(weights(lightning, h)) == h * (2 * keys + out) + 2 * h * out + out);
    }
}

TEST_CASE("KDA of random sizes", "[model]") {
    // 3 h P + 2 (d h + d P) + h H + 4 x 3 P + H + P + d + P h with P = H d.
    Sizes size;
    for (int i = 0; i < 100; ++i) {
        const std::int64_t heads = size(64), d = size(256), h = size(6000), p = heads * d;
        const LinearMixer m{"kda",
                            Family::kKda,
                            static_cast<int>(heads),
                            static_cast<int>(heads),
                            static_cast<int>(d),
                            static_cast<int>(d),
                            4};
        CHECK(stored(weights(m, h)) ==
              3 * h * p + 2 * (d * h + d * p) + h * heads + 12 * p + heads + p + d + p * h);
    }
}

TEST_CASE("attention of random sizes", "[model]") {
    Sizes size;
    for (int i = 0; i < 100; ++i) {
        const std::int64_t nkv = size(8), nq = nkv * size(16), d = size(256), h = size(8000);
        GqaMixer m{"attention", static_cast<int>(nq), static_cast<int>(nkv), static_cast<int>(d)};
        CHECK(stored(weights(Attention(m), h)) == h * (nq + 2 * nkv) * d + nq * d * h);
        m.output_gate = m.qk_norm = true;
        CHECK(stored(weights(Attention(m), h)) == h * (2 * nq + 2 * nkv) * d + nq * d * h + 2 * d);
        const std::int64_t plain = stored(weights(Attention(m), h));
        m.rope = true;
        CHECK(stored(weights(Attention(m), h)) == plain);

        const std::int64_t latent = size(1024), rope = size(64), nope = size(256), q_latent = size(2048);
        MlaMixer mla{"mla",
                     static_cast<int>(nq),
                     0,
                     static_cast<int>(latent),
                     static_cast<int>(nope),
                     static_cast<int>(rope),
                     static_cast<int>(d)};
        const std::int64_t rest = h * (latent + rope) + latent + latent * nq * (nope + d) + nq * d * h;
        CHECK(stored(weights(Attention(mla), h)) == h * nq * (nope + rope) + rest);
        mla.q_latent = static_cast<int>(q_latent);
        CHECK(stored(weights(Attention(mla), h)) ==
              h * q_latent + q_latent + q_latent * nq * (nope + rope) + rest);
    }
}

TEST_CASE("FFNs of random sizes, stored and active", "[model]") {
    Sizes size;
    for (int i = 0; i < 100; ++i) {
        const std::int64_t h = size(8000), width = size(20'000), experts = size(512), k = size(8),
                           shared = size(4000), latent = size(2000);
        CHECK(stored(weights(Ffn(DenseFfn{"f", static_cast<int>(width)}), h)) == 3 * h * width);
        CHECK(stored(weights(Ffn(DenseFfn{"f", static_cast<int>(width), Activation::kRelu2}), h)) ==
              2 * h * width);

        MoeFfn qwen{"moe", static_cast<int>(experts), static_cast<int>(k), static_cast<int>(width),
                    static_cast<int>(shared)};
        qwen.shared_gate = true;
        const std::int64_t always = h * experts + 3 * h * shared + h;
        CHECK(stored(weights(Ffn(qwen), h)) == 3 * experts * h * width + always);
        CHECK(active(weights(Ffn(qwen), h)) == 3 * k * h * width + always);
        qwen.shared_width = 0;  // no shared expert has no gate either
        CHECK(stored(weights(Ffn(qwen), h)) == 3 * experts * h * width + h * experts);

        MoeFfn nemotron{"moe",
                        static_cast<int>(experts),
                        static_cast<int>(k),
                        static_cast<int>(width),
                        static_cast<int>(shared),
                        static_cast<int>(latent)};
        nemotron.router_bias = true;
        nemotron.activation = Activation::kRelu2;
        const std::int64_t around = h * experts + experts + 2 * h * shared + 2 * h * latent;
        CHECK(stored(weights(Ffn(nemotron), h)) == 2 * experts * latent * width + around);
        CHECK(active(weights(Ffn(nemotron), h)) == 2 * k * latent * width + around);
        nemotron.latent = 0;
        CHECK(active(weights(Ffn(nemotron), h)) == 2 * k * h * width + around - 2 * h * latent);
    }
}

TEST_CASE("norms, ends and MTP of a model, counted one by one", "[model]") {
    const ModelSpec m = testing::qwen35_4b();
    const std::int64_t h = m.hidden;
    const LayerWeights linear = layer_weights(m, m.kind('L'));
    const LayerWeights full = layer_weights(m, m.kind('F'));
    CHECK(linear.norms.parameters == 2 * h);  // before the mixer and before the FFN
    CHECK(linear.attention == WeightCount{});
    CHECK(full.linear == WeightCount{});
    const ModelWeights w = model_weights(m);
    CHECK(w.body.parameters == 24 * linear.total().parameters + 8 * full.total().parameters + h);
    CHECK(w.embedding.parameters == 248'320 * h);
    CHECK(w.head == WeightCount{});  // tied
    // fc of 2h x h, the two norms before it, the layer with its two norms, a final norm.
    CHECK(w.mtp.parameters ==
          2 * h * h + 2 * h + full.attention.parameters + full.ffn.parameters + 2 * h + h);
    CHECK(w.total().parameters == w.text().parameters + w.mtp.parameters);

    ModelSpec untied = m;
    untied.tied_embeddings = false;
    CHECK(model_weights(untied).head.parameters == 248'320 * h);
    ModelSpec without = m;
    without.mtp_pattern.clear();
    CHECK(model_weights(without).mtp == WeightCount{});
}
