// The committed models against published parameter counts: exact where an exact count is published.
#include "sim/model/parameters.hpp"
#include "tests/sim/model/support.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using kvsim::testing::committed;

namespace {

// Vision tower of Qwen3.5, which the repositories' totals include: `depth` blocks of width hv and MLP width
// iv (attention 4 hv^2 + 4 hv, two norms 4 hv, MLP 2 hv iv + iv + hv), patch embedding of 3 x 2 x 16 x 16 =
// 1536 values with bias, 2304 positions, a norm, and a merger of 4 patches into the text width.
std::int64_t vision_parameters(std::int64_t hv, std::int64_t iv, std::int64_t depth, std::int64_t out) {
    return depth * (4 * hv * hv + 8 * hv + 2 * hv * iv + iv + hv) + 1537 * hv + 2304 * hv + 2 * hv +
           16 * hv * hv + 4 * hv + 4 * hv * out + out;
}

double billions(std::int64_t n) {
    return static_cast<double>(n) * 1e-9;
}
double millions(std::int64_t n) {
    return static_cast<double>(n) * 1e-6;
}

}  // namespace

TEST_CASE("text + MTP + vision equals the parameters of the published repositories", "[model]") {
    struct Case {
        const char* name;
        std::int64_t vision_width, vision_mlp, vision_depth, published;
    };
    const Case cases[] = {
        {"qwen3-next-80b-a3b", 0, 0, 0, 81'324'862'720},
        {"qwen3.5-0.8b", 768, 3072, 12, 873'438'784},
        {"qwen3.5-2b", 1024, 4096, 24, 2'274'069'824},
        {"qwen3.5-4b", 1024, 4096, 24, 4'659'865'088},
        {"qwen3.5-9b", 1152, 4304, 27, 9'653'104'368},
        {"qwen3.5-27b", 1152, 4304, 27, 27'781'427'952},
        {"qwen3.5-35b-a3b", 1152, 4304, 27, 35'951'822'704},
        {"qwen3.5-122b-a10b", 1152, 4304, 27, 125'086'497'008},
        {"qwen3.5-397b-a17b", 1152, 4304, 27, 403'397'928'944},
    };
    for (const Case& c : cases) {
        INFO(c.name);
        const ModelSpec model = committed(c.name);
        const ModelWeights weights = model_weights(model);
        const std::int64_t vision = c.vision_depth == 0 ? 0
                                                        : vision_parameters(c.vision_width, c.vision_mlp,
                                                                            c.vision_depth, model.hidden);
        CHECK(weights.total().parameters + vision == c.published);
        CHECK(weight_bytes(model) == Bytes(2 * weights.text().parameters));
    }
}

TEST_CASE("published parts: text alone, MTP alone, vision alone", "[model]") {
    // Qwen3.5-397B-A17B is published with its split.
    const ModelWeights large = model_weights(committed("qwen3.5-397b-a17b"));
    CHECK(large.text().parameters == 396'346'350'336);
    CHECK(large.mtp.parameters == 6'595'568'128);
    CHECK(vision_parameters(1152, 4304, 27, 4096) == 456'010'480);
    // Qwen3-Coder-Next has the body of Qwen3-Next and no MTP layer.
    CHECK(model_weights(committed("qwen3-next-80b-a3b")).text().parameters == 79'674'391'296);
    // Loader counts of llama.cpp for the text model.
    CHECK(model_weights(committed("nemotron-3-nano-30b-a3b")).text().parameters == 31'577'940'288);
    CHECK(model_weights(committed("nemotron-3-super-120b-a12b")).text().parameters == 120'668'707'840);
    CHECK(model_weights(committed("kimi-linear-48b-a3b")).text().parameters == 49'122'681'728);
}

TEST_CASE("models without a published exact count: their formulas summed, and the published name",
          "[model]") {
    struct Case {
        const char* name;
        std::int64_t exact;
        double published, tolerance;  // billions; of the name or card
    };
    const Case cases[] = {
        {"nemotron-h-8b", 8'100'852'736, 8.0, 0.014},
        {"nemotron-nano-9b-v2", 8'888'227'328, 9.0, 0.013},
        {"nemotron-3-nano-4b", 3'973'556'832, 4.0, 0.008},
        {"nemotron-3-ultra-550b-a55b", 549'308'993'536, 550.0, 0.002},
    };
    for (const Case& c : cases) {
        INFO(c.name);
        const std::int64_t text = model_weights(committed(c.name)).text().parameters;
        CHECK(text == c.exact);
        CHECK(billions(text) == Approx(c.published).epsilon(c.tolerance));
    }
}

TEST_CASE("Falcon-H1-7B, Granite-4.0-H-Small and MiniMax-M1, worked out by hand", "[model]") {
    // 44 layers: attention (12 + 2 x 2) x 128 x h + 12 x 128 x h; Mamba-2 with di = 3072, C = 3072 + 2 x 256;
    // SwiGLU 3 h 12288; two norms.
    const std::int64_t f = 3072;
    const std::int64_t falcon = 16 * 128 * f + 1536 * f + f * (3072 + 3584 + 24) + 5 * 3584 + 3 * 24 + 3072 +
                                3072 * f + 3 * f * 12288 + 2 * f;
    const ModelWeights falcon_weights = model_weights(committed("falcon-h1-7b"));
    CHECK(falcon_weights.body.parameters == 44 * falcon + f);
    CHECK(falcon_weights.text().parameters == 44 * falcon + f + 2 * 130'048 * f);
    CHECK(billions(falcon_weights.text().parameters) == Approx(7.59).margin(0.005));  // model card: 7.59B

    // 36 Mamba-2 layers (di = 8192, C = 8192 + 2 x 128), 4 of attention, 72 experts each; tied embeddings.
    const std::int64_t g = 4096;
    const std::int64_t mamba = g * (8192 + 8448 + 128) + 5 * 8448 + 3 * 128 + 8192 + 8192 * g;
    const std::int64_t attention = 48 * 128 * g + 4096 * g;
    const std::int64_t moe = 72 * 3 * g * 768 + 72 * g + 3 * g * 1536;
    const ModelWeights granite = model_weights(committed("granite-4.0-h-small"));
    CHECK(granite.text().parameters == 36 * mamba + 4 * attention + 40 * (moe + 2 * g) + g + 100'352 * g);
    CHECK(granite.head.parameters == 0);
    CHECK(billions(granite.text().parameters) == Approx(32.2).margin(0.05));  // published: 32.2B, 9B active
    CHECK(billions(granite.text().active) == Approx(9).margin(0.5));

    // 70 lightning layers (q, k, v, gate and output of 8192), 10 of attention, 32 experts each.
    const std::int64_t m = 6144;
    const std::int64_t lightning = 5 * m * 8192 + 8192;
    const std::int64_t softmax = 80 * 128 * m + 8192 * m;
    const std::int64_t experts = 32 * 3 * m * 9216 + 32 * m;
    const ModelWeights minimax = model_weights(committed("minimax-m1"));
    CHECK(minimax.text().parameters ==
          70 * lightning + 10 * softmax + 80 * (experts + 2 * m) + m + 2 * 200'064 * m);
    CHECK(billions(minimax.text().parameters) == Approx(456).margin(0.5));  // published: 456B
    CHECK(billions(minimax.body.active) == Approx(45.9).margin(0.05));      // published: 45.9B
}

TEST_CASE("active parameters: body, with head, with embedding", "[model]") {
    struct Case {
        const char* name;
        double body, with_head, with_embedding;  // billions; 0: tied
    };
    const Case cases[] = {
        {"qwen3-next-80b-a3b", 3.253, 3.564, 3.875},
        {"qwen3.5-0.8b", 0.498, 0.752, 0},
        {"qwen3.5-2b", 1.373, 1.882, 0},
        {"qwen3.5-4b", 3.570, 4.206, 0},
        {"qwen3.5-9b", 6.920, 7.937, 8.954},
        {"qwen3.5-27b", 24.353, 25.625, 26.896},
        {"qwen3.5-35b-a3b", 2.438, 2.946, 3.455},
        {"qwen3.5-122b-a10b", 8.246, 9.008, 9.771},
        {"qwen3.5-397b-a17b", 15.315, 16.332, 17.349},
        {"nemotron-h-8b", 7.027, 7.564, 8.101},
        {"nemotron-nano-9b-v2", 7.714, 8.301, 8.888},
        {"nemotron-3-nano-4b", 3.151, 3.563, 3.974},
        {"nemotron-3-nano-30b-a3b", 2.875, 3.228, 3.580},
        {"nemotron-3-super-120b-a12b", 11.696, 12.233, 12.770},
        {"nemotron-3-ultra-550b-a55b", 53.911, 54.985, 56.059},
        {"kimi-linear-48b-a3b", 2.729, 3.107, 3.484},
    };
    for (const Case& c : cases) {
        INFO(c.name);
        const ModelWeights w = model_weights(committed(c.name));
        const bool tied = c.with_embedding == 0;
        CHECK(billions(w.body.active) == Approx(c.body).margin(0.0005));
        CHECK(billions(w.body.active + (tied ? w.embedding : w.head).active) ==
              Approx(c.with_head).margin(0.0005));
        CHECK((w.head.parameters == 0) == tied);
        if (!tied) CHECK(billions(w.text().active) == Approx(c.with_embedding).margin(0.0005));
    }
}

TEST_CASE("parameters of one layer, in millions to two digits as published", "[model]") {
    struct Case {
        const char* name;
        char linear, attention, ffn;
        double linear_m, attention_m, ffn_m, ffn_active_m, mtp_active_b;  // 0: not in the table
    };
    const Case cases[] = {
        {"qwen3-next-80b-a3b", 'L', 'F', 'L', 33.72, 27.26, 1614.81, 35.65, 0.071},
        {"qwen3.5-0.8b", 'L', 'F', 'L', 10.54, 7.34, 11.01, 11.01, 0.020},
        {"qwen3.5-2b", 'L', 'F', 'L', 21.06, 14.68, 37.75, 37.75, 0.061},
        {"qwen3.5-4b", 'L', 'F', 'L', 42.14, 36.70, 70.78, 70.78, 0.121},
        {"qwen3.5-9b", 'L', 'F', 'L', 67.40, 58.72, 150.99, 150.99, 0.243},
        {"qwen3.5-27b", 'L', 'F', 'L', 115.88, 104.86, 267.39, 267.39, 0.425},
        {"qwen3.5-35b-a3b", 'L', 'F', 'L', 33.72, 27.26, 808.98, 28.84, 0.065},
        {"qwen3.5-122b-a10b", 'L', 'F', 'L', 88.52, 78.64, 2426.15, 85.72, 0.183},
        {"qwen3.5-397b-a17b", 'L', 'F', 'L', 118.01, 104.86, 6457.14, 140.51, 0.279},
        {"nemotron-h-8b", 'M', '*', '-', 109.64, 41.94, 176.16, 176.16, 0},
        {"nemotron-3-nano-30b-a3b", 'M', '*', 'E', 38.74, 23.40, 1297.47, 80.17, 0},
        {"nemotron-3-super-120b-a12b", 'M', '*', 'E', 109.64, 35.65, 2873.10, 175.64, 0.245},
        {"nemotron-3-ultra-550b-a55b", 'M', '*', 'E', 421.64, 138.41, 10942.94, 666.89, 0.940},
        {"kimi-linear-48b-a3b", 'K', 'A', 'K', 39.51, 29.11, 1819.61, 64.29, 0},
        {"kimi-linear-48b-a3b", 'D', 'A', 'D', 39.51, 29.11, 63.70, 63.70, 0},
    };
    for (const Case& c : cases) {
        INFO(c.name);
        const ModelSpec model = committed(c.name);
        const auto layer = [&](char letter) { return layer_weights(model, model.kind(letter)); };
        CHECK(millions(layer(c.linear).linear.parameters) == Approx(c.linear_m).margin(0.00501));
        CHECK(millions(layer(c.attention).attention.parameters) == Approx(c.attention_m).margin(0.00501));
        CHECK(millions(layer(c.ffn).ffn.parameters) == Approx(c.ffn_m).margin(0.00501));
        CHECK(millions(layer(c.ffn).ffn.active) == Approx(c.ffn_active_m).margin(0.00501));
        CHECK(billions(model_weights(model).mtp.active) == Approx(c.mtp_active_b).margin(0.000501));
    }
}

TEST_CASE("layers of each kind are as many as published", "[model]") {
    const auto layers = [](const char* name) {
        const ModelSpec m = committed(name);
        return std::vector<int>{linear_layers(m), attention_layers(m), m.layers()};
    };
    CHECK(layers("qwen3-next-80b-a3b") == std::vector{36, 12, 48});
    CHECK(layers("qwen3.5-0.8b") == std::vector{18, 6, 24});
    CHECK(layers("qwen3.5-27b") == std::vector{48, 16, 64});
    CHECK(layers("qwen3.5-397b-a17b") == std::vector{45, 15, 60});
    CHECK(layers("nemotron-h-8b") == std::vector{24, 4, 52});
    CHECK(layers("nemotron-nano-9b-v2") == std::vector{27, 4, 56});
    CHECK(layers("nemotron-3-nano-4b") == std::vector{21, 4, 42});
    CHECK(layers("nemotron-3-nano-30b-a3b") == std::vector{23, 6, 52});
    CHECK(layers("nemotron-3-super-120b-a12b") == std::vector{40, 8, 88});
    CHECK(layers("nemotron-3-ultra-550b-a55b") == std::vector{48, 12, 108});
    CHECK(layers("granite-4.0-h-small") == std::vector{36, 4, 40});
    CHECK(layers("falcon-h1-7b") == std::vector{44, 44, 44});
    CHECK(layers("kimi-linear-48b-a3b") == std::vector{20, 7, 27});
    CHECK(layers("minimax-m1") == std::vector{70, 10, 80});
}
