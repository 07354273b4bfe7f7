// Model files: what is refused, and the written form.
#include <filesystem>
#include <fstream>

#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

const std::string kTiny = R"(schema: kvsim/model/2
name: tiny
hidden: 64
vocab: 100
tied_embeddings: true
parts:
  linear: {type: gdn, k_heads: 2, v_heads: 4, k_dim: 16, v_dim: 16, conv_kernel: 4}
  attention: {type: gqa, q_heads: 2, kv_heads: 1, head_dim: 32, output_gate: false, qk_norm: true, rope: true}
  ffn: {type: dense, width: 96, activation: relu2}
layers:
  L: [linear, ffn]
  "*": [attention]
pattern: LL*
repeat: 2
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    KVSIM_CHECK(at != std::string::npos, "no {} in the file", from);
    return text.replace(at, from.size(), to);
}

// What reading says, without the file's path.
std::string model_error(const std::string& text) {
    const TemporaryFolder folder;
    const std::string file = folder.write("tiny.yaml", text);
    std::string error = config_error([&] { load_model(file); });
    for (std::size_t at = error.find(file); at != std::string::npos; at = error.find(file))
        error.replace(at, file.size(), "tiny.yaml");
    return error;
}

std::string changed(const std::string& from, const std::string& to) {
    return model_error(replaced(kTiny, from, to));
}

TEST_CASE("a model file gives what it says") {
    const TemporaryFolder folder;
    const ModelSpec m = load_model(folder.write("tiny.yaml", kTiny));
    CHECK(m.pattern == "LL*LL*");
    CHECK(m.mtp_pattern.empty());
    CHECK(m.tied_embeddings);
    REQUIRE(m.kinds.size() == 2);
    CHECK(m.kinds[0] == LayerKind{'L',
                                  LinearMixer{"linear", Family::kGdn, 2, 4, 16, 16, 4},
                                  {},
                                  DenseFfn{"ffn", 96, Activation::kRelu2}});
    CHECK(m.kinds[1] == LayerKind{'*', {}, GqaMixer{"attention", 2, 1, 32, false, true, true}, {}});
    CHECK(m.state == StateFormat::kFp32);
    CHECK(m.formats == decltype(m.formats){});
    CHECK(linear_layers(m) == 4);
    CHECK(attention_layers(m) == 2);
}

TEST_CASE("every committed model survives its written form, and so do weight formats") {
    const TemporaryFolder folder;
    for (const auto& entry : std::filesystem::directory_iterator(kConfigs + "/models")) {
        INFO(entry.path());
        ModelSpec m = load_model(entry.path().string());
        CHECK(load_model(folder.write("m.yaml", to_yaml(m))) == m);
        m.formats[0] = {WeightType::kFp8, 0, 0, 0};
        m.formats[2] = {WeightType::kFp8, 128, 128, 4};
        m.formats[3] = {WeightType::kFp8, 1, 32, 2};
        m.formats[4] = {WeightType::kFp4, 1, 16, 1};
        m.state = StateFormat::kBf16;
        for (LayerKind& kind : m.kinds) {
            if (auto* moe = kind.ffn ? std::get_if<MoeFfn>(&*kind.ffn) : nullptr) moe->power_law = 1.2;
        }
        CHECK(load_model(folder.write("m.yaml", to_yaml(m))) == m);
    }
}

TEST_CASE("the shortest period of a pattern is written") {
    const TemporaryFolder folder;
    const std::string text = to_yaml(load_model(folder.write("tiny.yaml", kTiny)));
    CHECK_THAT(text, ContainsSubstring("pattern: LL*\n") && ContainsSubstring("repeat: 2\n"));
}

TEST_CASE("parts, kinds and patterns must fit together") {
    CHECK(
        changed("[linear, ffn]", "[linear, fnn]") ==
        "tiny.yaml:9:8: parts.ffn: no kind of layer uses this part\n"
        "tiny.yaml:11:15: layers.L[1]: no part is called `fnn` (did you mean `ffn`?); there are: attention, "
        "ffn, linear");
    CHECK(changed("[attention]", "[attention, attention]") ==
          "tiny.yaml:12:20: layers.*[1]: expected at most one linear mixer, one attention and one FFN in a "
          "layer");
    CHECK(changed("pattern: LL*", "pattern: LLX*X") ==
          "tiny.yaml:13:10: pattern: no kind of layer in `layers` for `X`");
    CHECK(changed("pattern: LL*", "pattern: LL") ==
          "tiny.yaml:12:8: layers.*: neither pattern nor mtp uses this kind of layer");
    CHECK(changed("repeat: 2", "repeat: 2\nmtp: Q") ==
          "tiny.yaml:15:6: mtp: no kind of layer in `layers` for `Q`");
    CHECK(changed("repeat: 2", "repeat: 342") ==
          "tiny.yaml:13:10: pattern: expected at most 1024 layers, got 1026");
    CHECK_THAT(changed("  L: [", "  LL: ["),
               ContainsSubstring("layers.LL: expected one character as the name of a kind of layer"));
    CHECK_THAT(changed("[attention]", "[]"),
               ContainsSubstring("layers.*: expected a list of at least 1 values"));
    CHECK_THAT(
        changed("attention: {type: gqa, q_heads: 2, kv_heads: 1, head_dim: 32, output_gate: false, qk_norm: "
                "true, rope: true}",
                "attention: {type: lightning, k_heads: 2, v_heads: 2, k_dim: 8, v_dim: 8, conv_kernel: 0}"),
        ContainsSubstring("parts.attention: expected one linear mixer in a model"));
}

TEST_CASE("parts say what is wrong with them") {
    CHECK(changed("v_heads: 4", "v_heads: 3") ==
          "tiny.yaml:7:44: parts.linear.v_heads: expected a multiple of k_heads (2), got 3");
    CHECK(changed("type: gdn", "type: gnd") ==
          "tiny.yaml:7:18: parts.linear.type: expected one of gdn, kda, mamba2, lightning, gqa, mla, dense, "
          "moe, "
          "got `gnd` (did you mean `gdn`?)");
    CHECK(changed("type: gdn", "type: lightning") ==
          "tiny.yaml:7:50: parts.linear.v_heads: expected as many as k_heads (2), got 4");
    CHECK(changed("rope: true", "ropes: true") ==
          "tiny.yaml:8:14: parts.attention.rope: missing required key\n"
          "tiny.yaml:8:100: parts.attention.ropes: unknown key `ropes` (did you mean `rope`?)");
    CHECK(changed("activation: relu2", "activation: gelu") ==
          "tiny.yaml:9:45: parts.ffn.activation: expected one of swiglu, relu2, got `gelu`");
    CHECK(changed(
              "{type: dense, width: 96, activation: relu2}",
              "{type: moe, experts: 4, top_k: 5, expert_width: 8, shared_gate: true, activation: swiglu}") ==
          "tiny.yaml:9:39: parts.ffn.top_k: expected at most the number of experts (4), got 5\n"
          "tiny.yaml:9:72: parts.ffn.shared_gate: expected false, because there is no shared expert");
}

TEST_CASE("formats of weights") {
    const auto with = [](const std::string& weights) {
        return model_error(kTiny + "weights: " + weights + "\n");
    };
    CHECK(with("{mixers: fp8, experts: {dtype: fp4, block: [1, 16], scale: fp8}}").empty());
    CHECK(with("{mixers: int8}") ==
          "tiny.yaml:15:19: weights.mixers: expected one of bf16, fp8, fp4, got `int8`");
    CHECK(with("{mixers: {dtype: fp8, block: [128], scale: fp32}}") ==
          "tiny.yaml:15:39: weights.mixers.block: expected a list of at least 2 values, got 1");
    CHECK(with("{mixers: {dtype: fp8, block: [1, 2, 3], scale: fp32}}") ==
          "tiny.yaml:15:39: weights.mixers.block: expected [rows, columns], got 3 values");
    CHECK_THAT(with("{norms: fp8}"), ContainsSubstring("weights.norms: unknown key `norms`"));
}

TEST_CASE("the model file of the README is one") {
    std::ifstream readme(KVSIM_SOURCE_DIR "/README.md");
    std::string line, text;
    while (std::getline(readme, line) && line != "schema: kvsim/model/2") {
    }
    for (; readme && line != "```"; std::getline(readme, line)) text += line + "\n";
    const TemporaryFolder folder;
    const ModelSpec m = load_model(folder.write("my-model.yaml", text));
    CHECK(m.name == "my-model");
    CHECK(m.layers() == 32);
    CHECK(m.formats[3] == WeightFormat{WeightType::kFp8, 128, 128, 4});
}

TEST_CASE("an older schema is refused by its number") {
    CHECK(changed("kvsim/model/2", "kvsim/model/1") ==
          "tiny.yaml:1:9: schema: expected `schema: kvsim/model/2`, got `kvsim/model/1`");
}

TEST_CASE("a file found by its name must hold that name; one given by its path may hold any") {
    const TemporaryFolder folder;
    folder.write("configs/models/small.yaml", kTiny);
    const std::string experiment =
        folder.write("configs/experiments/e.yaml",
                     "schema: kvsim/experiment/1\nname: e\nmodel: small\ndevice: h200\nengine: sglang\n"
                     "workload: {kind: steady, batch: 1, context: 1, steps: 1}\n");
    CHECK(config_error([&] { load_experiment(experiment); }) ==
          folder /
              "configs/models/small.yaml:2:7: name: expected `small`, as the file is called, got `tiny`");
    const Experiment by_path = load_experiment(experiment, {{"model", folder / "configs/models/small.yaml"}});
    CHECK(by_path.model.name == "tiny");
}

TEST_CASE("the model's own format of the state is that of an experiment that names none") {
    const auto error = [](const std::vector<Override>& overrides) {
        return config_error([&] { load_experiment(kSteady, overrides); });
    };
    const std::vector<Override> none = {{"linear", "{}"}, {"model.state_dtype", "fp16"}};
    CHECK_THAT(error(none), ContainsSubstring("linear.state_dtype: expected one of ") &&
                                ContainsSubstring("got the model's own, fp16"));
    CHECK(load_experiment(kSteady, {{"linear", "{state_dtype: fp32}"}, {"model.state_dtype", "fp16"}})
              .linear.state == StateFormat::kFp32);
}

}  // namespace
}  // namespace kvsim
