#include "sim/model/model.hpp"

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/models.hpp"

using namespace kvsim;

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// Multi-token prediction layer: fc of 2h x h, two norms before it, one full-attention layer with FFN and two
// norms, final norm; embedding and head are shared with the body.
std::int64_t mtp_parameters(const ModelSpec& m) {
    const std::int64_t h = m.hidden;
    const ParameterCounts p = count_parameters(m);
    return 2 * h * h + 2 * h + p.attention_layer + p.ffn_layer + 2 * h + h;
}

// Vision tower of Qwen3.5: `depth` blocks of width hv and MLP width iv, merger into the text width.
std::int64_t vision_parameters(std::int64_t hv, std::int64_t iv, std::int64_t depth, std::int64_t out) {
    return depth * (4 * hv * hv + 8 * hv + 2 * hv * iv + iv + hv) + 1537 * hv + 2304 * hv + 2 * hv +
           16 * hv * hv + 4 * hv + 4 * hv * out + out;
}

}  // namespace

TEST_CASE("text + MTP + vision parameters equal the published repository totals", "[model]") {
    struct Case {
        ModelSpec model;
        std::int64_t vision_width, vision_mlp, vision_depth, published, text;
    };
    // text = published - MTP - vision, by hand: 27B: 27,781,427,952 - 424,699,392 - 460,730,096.
    const Case cases[] = {
        {testing::qwen35_4b(), 1024, 4096, 24, 4'659'865'088, 4'205'751'296},
        {testing::qwen35_27b(), 1152, 4304, 27, 27'781'427'952, 26'895'998'464},
        {testing::qwen35_35b_a3b(), 1152, 4304, 27, 35'951'822'704, 34'660'610'688},
    };
    for (const Case& c : cases) {
        INFO(c.model.name);
        const std::int64_t text = count_parameters(c.model).total();
        const std::int64_t vision =
            vision_parameters(c.vision_width, c.vision_mlp, c.vision_depth, c.model.hidden);
        CHECK(text == c.text);
        CHECK(text + mtp_parameters(c.model) + vision == c.published);
        CHECK(weight_bytes(c.model) == Bytes(2 * c.text));
    }
}

TEST_CASE("parameters per layer, in millions to two digits as published", "[model]") {
    const auto millions = [](std::int64_t n) { return static_cast<double>(n) * 1e-6; };
    const ParameterCounts small = count_parameters(testing::qwen35_4b());
    CHECK(millions(small.linear_layer) == Approx(42.14).margin(0.005));
    CHECK(millions(small.attention_layer) == Approx(36.70).margin(0.005));
    CHECK(millions(small.ffn_layer) == Approx(70.78).margin(0.005));
    const ParameterCounts large = count_parameters(testing::qwen35_27b());
    CHECK(millions(large.linear_layer) == Approx(115.88).margin(0.005));
    CHECK(millions(large.attention_layer) == Approx(104.86).margin(0.005));
    CHECK(millions(large.ffn_layer) == Approx(267.39).margin(0.005));
    const ParameterCounts moe = count_parameters(testing::qwen35_35b_a3b());
    CHECK(millions(moe.linear_layer) == Approx(33.72).margin(0.005));
    CHECK(millions(moe.attention_layer) == Approx(27.26).margin(0.005));
    CHECK(millions(moe.ffn_layer) == Approx(808.98).margin(0.005));
    CHECK(millions(moe.ffn_layer_active) == Approx(28.84).margin(0.005));
}

TEST_CASE("active parameters: body, with head, with embedding", "[model]") {
    const auto billions = [](std::int64_t n) { return static_cast<double>(n) * 1e-9; };
    const ParameterCounts moe = count_parameters(testing::qwen35_35b_a3b());
    CHECK(billions(moe.body_active) == Approx(2.438).margin(0.0005));
    CHECK(billions(moe.body_active + moe.head) == Approx(2.946).margin(0.0005));
    CHECK(billions(moe.body_active + moe.head + moe.embedding) == Approx(3.455).margin(0.0005));
    const ParameterCounts tied = count_parameters(testing::qwen35_4b());
    CHECK(tied.head == 0);
    CHECK(tied.body == tied.body_active);
    CHECK(billions(tied.body) == Approx(3.570).margin(0.0005));
}

TEST_CASE("an expert layer without a shared expert has no shared gate either", "[model]") {
    ModelSpec m = testing::qwen35_35b_a3b();
    const std::int64_t with = count_parameters(m).ffn_layer;
    m.ffn.shared_intermediate = 0;
    CHECK(with - count_parameters(m).ffn_layer == 3LL * 2048 * 512 + 2048);
}

TEST_CASE("bytes per request", "[model]") {
    const auto mib = [](Bytes b) { return static_cast<double>(b.value()) / kMiB; };

    // 35B-A3B: 30 layers x 32 heads x 128 x 128 x 4 B; convolution 30 x (2 x 16 x 128 + 32 x 128) x 3 x 2 B.
    const ModelSpec moe = testing::qwen35_35b_a3b();
    CHECK(mib(state_bytes_per_request(moe, StateFormat::kFp32)) == 60.0);
    CHECK(mib(state_bytes_per_request(moe, StateFormat::kBf16)) == 30.0);
    CHECK(mib(state_bytes_per_request(moe, StateFormat::kSplit)) == 60.0);
    CHECK(mib(conv_bytes_per_request(moe)) == 1.40625);
    CHECK(kv_bytes_per_token(moe) == Bytes(20'480));  // 10 layers x K and V x 2 heads x 256 x 2 B

    const ModelSpec small = testing::qwen35_4b();
    CHECK(mib(state_bytes_per_request(small, StateFormat::kFp32)) == 48.0);  // 24 layers x 2 MiB
    CHECK(mib(conv_bytes_per_request(small)) == 1.125);                      // 24 x 8192 x 6 B
    CHECK(kv_bytes_per_token(small) == Bytes(8 * 2 * 4 * 256 * 2));

    const ModelSpec large = testing::qwen35_27b();
    CHECK(mib(state_bytes_per_request(large, StateFormat::kFp32)) == 144.0);  // 48 layers x 3 MiB
    CHECK(mib(conv_bytes_per_request(large)) == 48.0 * 10240 * 6 / kMiB);
    CHECK(kv_bytes_per_token(large) == Bytes(16 * 2 * 4 * 256 * 2));

    // Records of facts: 12,416 B with 16/32 heads, 16,576 B with 16/48; a state format changes nothing.
    CHECK(ring_bytes_per_request(moe, 16) == Bytes(30LL * 16 * 12'416));
    CHECK(ring_bytes_per_request(large, 20) == Bytes(48LL * 20 * 16'576));
}

TEST_CASE("a family without a parameter formula is refused, not guessed", "[model]") {
    ModelSpec m = testing::qwen35_4b();
    m.linear.family = Family::kMamba2;
    CHECK_THROWS_AS(count_parameters(m), InvariantError);
}
