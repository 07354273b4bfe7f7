#include "sim/model/parameters.hpp"
#include "tests/sim/model/support.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using kvsim::testing::committed;

namespace {

constexpr WeightFormat kFp8Blocks{WeightType::kFp8, 128, 128, 4};  // as Qwen's and DeepSeek's checkpoints
constexpr WeightFormat kNvfp4{WeightType::kFp4, 1, 16, 1};

WeightFormat& format_of(ModelSpec& model, WeightGroup group) {
    return model.formats[static_cast<std::size_t>(group)];
}

}  // namespace

TEST_CASE("bytes of a matrix in every format", "[model]") {
    CHECK(matrix_bytes(256, 512, {}) == Bytes(2 * 256 * 512));
    CHECK(matrix_bytes(256, 512, {WeightType::kFp8, 0, 0, 0}) == Bytes(256 * 512));
    CHECK(matrix_bytes(256, 512, kFp8Blocks) == Bytes(256 * 512 + 2 * 4 * 4));
    CHECK(matrix_bytes(129, 257, kFp8Blocks) == Bytes(129 * 257 + 2 * 3 * 4));  // blocks that are cut off
    CHECK(matrix_bytes(256, 512, kNvfp4) == Bytes(256 * 512 / 2 + 256 * 32));
    CHECK(matrix_bytes(3, 5, {WeightType::kFp4, 0, 0, 0}) == Bytes(8));  // 7.5 bytes
}

TEST_CASE("quantised experts: NVFP4 Nemotron-3-Super, by hand", "[model]") {
    // 40 layers x 512 experts x two matrices of 2688 x 1024: half a byte each and one scale per 16.
    ModelSpec m = committed("nemotron-3-super-120b-a12b");
    const Bytes bf16 = weight_bytes(m);
    format_of(m, WeightGroup::kExperts) = kNvfp4;
    const std::int64_t elements = 40LL * 512 * 2 * 2688 * 1024;
    CHECK(bf16 - weight_bytes(m) == Bytes(2 * elements - elements / 2 - elements / 16));
    // Its MTP module has one MoE block more.
    const ModelWeights w = model_weights(m);
    CHECK(Bytes(2 * w.mtp.parameters) - w.mtp.bytes ==
          Bytes((2 * elements - elements / 2 - elements / 16) / 40));
}

TEST_CASE("quantised dense model: FP8 Qwen3.5-27B, by hand", "[model]") {
    ModelSpec m = committed("qwen3.5-27b");
    const Bytes bf16 = weight_bytes(m);
    format_of(m, WeightGroup::kMixers) = kFp8Blocks;
    format_of(m, WeightGroup::kFfn) = kFp8Blocks;
    // All sizes are multiples of 128: a scale of 4 bytes per 16,384 elements. Per layer: qkvz and output of
    // the 48 linear ones, qkv with gate and output of the 16 full ones, SwiGLU of all 64.
    const std::int64_t h = 5120;
    const std::int64_t elements = 48 * h * (2 * 2048 + 2 * 6144 + 6144) +
                                  16 * h * (2 * 24 * 256 + 2 * 4 * 256 + 24 * 256) + 64 * 3 * h * 17408;
    CHECK(bf16 - weight_bytes(m) == Bytes(elements - elements / 16384 * 4));
    // Embedding and head, 248,320 x 5,120 each, are groups of their own.
    format_of(m, WeightGroup::kHead) = {WeightType::kFp8, 0, 0, 0};
    CHECK(bf16 - weight_bytes(m) == Bytes(elements - elements / 16384 * 4 + 248'320 * h));
}

TEST_CASE("norms, convolutions, routers and gates are bf16 in every checkpoint", "[model]") {
    for (ModelSpec m : testing::all_committed()) {
        INFO(m.name);
        for (std::size_t g = 0; g + 1 < m.formats.size(); ++g) m.formats[g] = {WeightType::kFp8, 0, 0, 0};
        std::int64_t small = 0;
        for (const LayerKind& kind : m.kinds) {
            std::int64_t layer = std::int64_t{kind.sublayers()} * m.hidden;
            const auto add = [&](const std::vector<WeightMatrix>& list) {
                for (const WeightMatrix& w : list)
                    if (w.group == WeightGroup::kOther) layer += w.copies * w.rows * w.cols;
            };
            if (kind.linear) add(weights(*kind.linear, m.hidden));
            if (kind.attention) add(weights(*kind.attention, m.hidden));
            if (kind.ffn) add(weights(*kind.ffn, m.hidden));
            small += layer * m.count(kind);
        }
        small += m.hidden;
        const WeightCount text = model_weights(m).text();
        CHECK(text.bytes == Bytes(text.parameters + small));
        CHECK(static_cast<double>(small) < 0.02 * static_cast<double>(text.parameters));
    }
}
