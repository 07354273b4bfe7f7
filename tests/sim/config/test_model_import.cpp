// config.json files with the published sizes against the committed model files.
#include "sim/config/model_import.hpp"

#include <algorithm>
#include <regex>

#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// Fields that every configuration has and that change nothing here.
const std::string kCommon = R"("architectures": ["X"], "torch_dtype": "bfloat16", "rms_norm_eps": 1e-06,
    "rope_theta": 10000000, "bos_token_id": 1, "use_cache": true, "transformers_version": "4.57.0",
    "max_position_embeddings": 262144, "attention_dropout": 0.0, "hidden_act": "silu", )";

std::string repeated(const std::string& text, int times, const std::string& separator = ", ") {
    std::string out;
    for (int i = 0; i < times; ++i) out += (i == 0 ? "" : separator) + text;
    return out;
}

const std::string kLinear = R"("linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "head_dim": 256, "attention_bias": false, )";

const std::string kQwenNext = "{" + kCommon + kLinear + R"("model_type": "qwen3_next", "hidden_size": 2048,
    "num_hidden_layers": 48, "full_attention_interval": 4, "linear_num_value_heads": 32,
    "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": false,
    "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "intermediate_size": 5120, "mlp_only_layers": [],
    "decoder_sparse_step": 1, "norm_topk_prob": true, "partial_rotary_factor": 0.25})";

const std::string kQwenTypes =
    R"("linear_attention", "linear_attention", "linear_attention", "full_attention")";

const std::string kQwenDense = R"({"model_type": "qwen3_5", "architectures": ["X"], "image_token_id": 1,
    "tie_word_embeddings": false, "vision_config": {"depth": 27, "hidden_size": 1152}, "text_config": {)" +
                               kCommon + kLinear + R"("model_type": "qwen3_5_text", "hidden_size": 5120,
    "num_hidden_layers": 64, "full_attention_interval": 4, "linear_num_value_heads": 48,
    "num_attention_heads": 24, "num_key_value_heads": 4, "vocab_size": 248320, "intermediate_size": 17408,
    "attn_output_gate": true, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": false, "layer_types": [)" +
                               repeated(kQwenTypes, 16) + "]}}";

const std::string kQwenMoe =
    R"({"model_type": "qwen3_5_moe", "tie_word_embeddings": false, "text_config": {)" + kCommon + kLinear +
    R"("model_type": "qwen3_5_moe_text", "hidden_size": 2048,
    "num_hidden_layers": 40, "linear_num_value_heads": 32, "num_attention_heads": 16,
    "num_key_value_heads": 2, "vocab_size": 248320, "num_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1, "router_aux_loss_coef": 0.001, "layer_types": [)" +
    repeated(kQwenTypes, 10) + "]}}";

const std::string kNemotronCommon = kCommon + R"("model_type": "nemotron_h", "tie_word_embeddings": false,
    "vocab_size": 131072, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": true,
    "mamba_proj_bias": false, "use_bias": false, "mlp_bias": false, "attention_bias": false, "head_dim": 128,
    "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "chunk_size": 128, "expand": 2,
    "mamba_ssm_cache_dtype": "float32", "residual_in_fp32": false, "sliding_window": null, )";

const std::string kNemotronDense = "{" + kNemotronCommon + R"("hidden_size": 4096, "num_hidden_layers": 52,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "mamba_num_heads": 128, "mamba_head_dim": 64, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 21504})";

const std::string kNemotronSuper = "{" + kNemotronCommon + R"("hidden_size": 4096, "num_hidden_layers": 88,
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    "mamba_num_heads": 128, "mamba_head_dim": 64, "num_attention_heads": 32, "num_key_value_heads": 2,
    "intermediate_size": 2688, "n_routed_experts": 512, "num_experts_per_tok": 22,
    "moe_intermediate_size": 2688, "moe_latent_size": 1024, "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 5376, "num_nextn_predict_layers": 1,
    "mtp_hybrid_override_pattern": "*E", "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
    "routed_scaling_factor": 5.0})";

const std::string kKimi = "{" + kCommon + R"("model_type": "kimi_linear", "hidden_size": 2304,
    "num_hidden_layers": 27, "vocab_size": 163840, "tie_word_embeddings": false, "intermediate_size": 9216,
    "linear_attn_config": {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26]},
    "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72, "q_lora_rank": null,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "mla_use_nope": true, "num_experts": 256, "num_experts_per_token": 8, "moe_intermediate_size": 1024,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_expert_group": 1,
    "moe_router_activation_func": "sigmoid", "moe_renormalize": true, "routed_scaling_factor": 2.446,
    "topk_group": 1, "use_grouped_topk": true, "num_nextn_predict_layers": 0, "model_max_length": 1048576})";

const std::string kMambaCommon = R"("mamba_d_conv": 4, "mamba_conv_bias": true, "mamba_proj_bias": false,
    "mamba_expand": 2, "mamba_chunk_size": 256, "mamba_n_groups": 1, "attention_bias": false, )";

const std::string kGranite =
    "{" + kCommon + kMambaCommon + R"("model_type": "granitemoehybrid",
    "hidden_size": 4096, "num_hidden_layers": 40, "vocab_size": 100352, "tie_word_embeddings": true,
    "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "num_attention_heads": 32,
    "num_key_value_heads": 8, "position_embedding_type": "nope", "num_local_experts": 72,
    "num_experts_per_tok": 10, "intermediate_size": 768, "shared_intermediate_size": 1536,
    "embedding_multiplier": 12, "logits_scaling": 16, "layer_types": [)" +
    repeated(repeated("\"mamba\"", 5) + ", \"attention\", " + repeated("\"mamba\"", 4), 4) + "]}";

const std::string kFalcon = "{" + kCommon + kMambaCommon + R"("model_type": "falcon_h1", "hidden_size": 3072,
    "num_hidden_layers": 44, "vocab_size": 130048, "tie_word_embeddings": false, "mamba_n_heads": 24,
    "mamba_d_head": 128, "mamba_d_state": 256, "mamba_d_ssm": 3072, "mamba_rms_norm": true,
    "mamba_norm_before_gate": false, "mamba_use_mlp": true, "num_attention_heads": 12,
    "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 12288, "mlp_bias": false,
    "projectors_bias": false, "ssm_multipliers": [1, 1, 1, 1, 1]})";

const std::string kMiniMax = "{" + kCommon + R"("model_type": "minimax_m1", "hidden_size": 6144,
    "num_hidden_layers": 80, "vocab_size": 200064, "tie_word_embeddings": false, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32, "num_experts_per_tok": 2,
    "intermediate_size": 9216, "shared_intermediate_size": 0, "rotary_dim": 64, "postnorm": true,
    "layernorm_mlp_alpha": 3.55, "attn_type_list": [)" +
                             repeated("0, 0, 0, 0, 0, 0, 0, 1", 10) + "]}";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    KVSIM_CHECK(at != std::string::npos, "no {} in the configuration", from);
    return text.replace(at, from.size(), to);
}

ImportedModel import_text(const std::string& text, const std::string& name = "test") {
    const TemporaryFolder folder;
    return import_model(folder.write("config.json", text), name);
}

// What importing reports, without the folder.
std::string placed_import_error(const std::string& text) {
    const TemporaryFolder folder;
    const std::string file = folder.write("config.json", text);
    std::string error = config_error([&] { import_model(file, "test"); });
    for (std::size_t at = error.find(file); at != std::string::npos; at = error.find(file))
        error.replace(at, file.size(), "config.json");
    return error;
}
// And without lines and columns.
std::string import_error(const std::string& text) {
    return std::regex_replace(placed_import_error(text), std::regex("config\\.json:[0-9]+:[0-9]+:"),
                              "config.json:");
}

// ---- what is understood ----------------------------------------------------------------------------------

TEST_CASE("configurations with the published sizes give the committed models") {
    const std::pair<const char*, std::string> cases[] = {
        {"qwen3.5-27b", kQwenDense},       {"qwen3.5-35b-a3b", kQwenMoe},
        {"nemotron-h-8b", kNemotronDense}, {"nemotron-3-super-120b-a12b", kNemotronSuper},
        {"kimi-linear-48b-a3b", kKimi},    {"granite-4.0-h-small", kGranite},
        {"falcon-h1-7b", kFalcon},         {"minimax-m1", kMiniMax},
    };
    for (const auto& [name, text] : cases) {
        INFO(name);
        const ImportedModel imported = import_text(text, name);
        CHECK(imported.model == load_model(kConfigs + "/models/" + name + ".yaml"));
        CHECK(imported.not_understood.empty());
        CHECK(imported.remarks.empty());
        // And the file that is written reads back.
        const TemporaryFolder folder;
        CHECK(load_model(folder.write(std::string(name) + ".yaml", to_yaml(imported.model))) ==
              imported.model);
    }
}

TEST_CASE("a configuration that does not speak of MTP gives none, and a remark") {
    const ImportedModel imported = import_text(kQwenNext, "qwen3-next-80b-a3b");
    ModelSpec committed = load_model(kConfigs + "/models/qwen3-next-80b-a3b.yaml");
    CHECK(committed.mtp_pattern == "F");
    committed.mtp_pattern.clear();
    CHECK(imported.model == committed);
    CHECK(imported.not_understood.empty());
    REQUIRE(imported.remarks.size() == 1);
    CHECK_THAT(imported.remarks[0], ContainsSubstring("MTP"));
}

TEST_CASE("words that newer versions write for the blocks of Nemotron") {
    const std::string renamed = replaced(
        replaced(
            kNemotronDense,
            "\"hybrid_override_pattern\": \"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-\"",
            R"("layers_block_type": ["linear_attention", "mlp", "full_attention", "mamba", "attention"])"),
        "\"num_hidden_layers\": 52", "\"num_hidden_layers\": 5");
    CHECK(import_text(renamed).model.pattern == "M-*M*");
}

TEST_CASE("variants of the same types") {
    CHECK_FALSE(import_text(replaced(kFalcon, "\"mamba_rms_norm\": true", "\"mamba_rms_norm\": false"))
                    .model.kinds[0]
                    .linear->gated_norm);
    const ModelSpec micro =
        import_text(replaced(kGranite, "\"num_local_experts\": 72", "\"num_local_experts\": 0")).model;
    CHECK(*micro.kinds[0].ffn == Ffn(DenseFfn{"mlp", 1536, Activation::kSwiglu}));
    const ModelSpec bf16_state = import_text(replaced(kQwenDense, "\"mamba_ssm_dtype\": \"float32\"",
                                                      "\"mamba_ssm_dtype\": \"bfloat16\""))
                                     .model;
    CHECK(bf16_state.state == StateFormat::kBf16);
    CHECK(import_text(replaced(kQwenDense, "\"attn_output_gate\": true", "\"attn_output_gate\": false"))
              .model.kinds[1]
              .attention == Attention(GqaMixer{"attention", 24, 4, 256, false, true, true}));
    const ModelSpec deep =
        import_text(replaced(kKimi, "\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 4")).model;
    CHECK(deep.pattern == "DDDBKKKAKKKAKKKAKKKAKKKAKKA");
    CHECK(
        std::get<MlaMixer>(*import_text(replaced(kKimi, "\"mla_use_nope\": true", "\"mla_use_nope\": false"))
                                .model.kind('A')
                                .attention)
            .rope);
}

TEST_CASE("block-scaled FP8 checkpoints") {
    const std::string quantised = replaced(kQwenDense, "\"architectures\"", R"("quantization_config": {
        "quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic", "fmt": "e4m3",
        "modules_to_not_convert": ["lm_head"]}, "architectures")");
    const ImportedModel imported = import_text(quantised);
    const WeightFormat fp8{WeightType::kFp8, 128, 128, 4};
    CHECK(imported.model.formats ==
          std::array{WeightFormat{}, WeightFormat{}, fp8, fp8, fp8, WeightFormat{}});
    CHECK(imported.not_understood == std::vector<std::string>{"quantization_config.modules_to_not_convert"});
    CHECK(import_error(replaced(quantised, "\"fp8\"", "\"gptq\"")) ==
          "config.json: quantization_config.quant_method: expected fp8 with weight_block_size; for another "
          "format remove quantization_config, import, and write `weights` into the model file");
    CHECK(import_error(replaced(quantised, "[128, 128]", "[128, 0]")) ==
          "config.json: quantization_config.weight_block_size: expected two sizes above zero");
}

TEST_CASE("fields that were not understood are listed with their paths") {
    const ImportedModel imported = import_text(
        replaced(replaced(kQwenDense, "\"image_token_id\": 1", "\"sparse_vision\": 3, \"none\": null"),
                 "\"attn_output_gate\": true", "\"attn_window\": 4096, \"sliding_window\": 8"));
    CHECK(imported.not_understood ==
          std::vector<std::string>{"text_config.attn_window", "text_config.sliding_window", "sparse_vision"});
}

// ---- what is refused -------------------------------------------------------------------------------------

TEST_CASE("a needed field that is missing or of a wrong type is named with its file") {
    CHECK(import_error(replaced(kQwenNext, "\"hidden_size\": 2048,", "")) ==
          "config.json: hidden_size: missing required key");
    CHECK(import_error(replaced(kQwenDense, "\"hidden_size\": 5120", "\"hidden_size\": \"5120\"")) ==
          "config.json: text_config.hidden_size: expected a whole number from 0 to 2147483647, got \"5120\"");
    CHECK(import_error(replaced(kQwenNext, "\"vocab_size\": 151936", "\"vocab_size\": 1.5")) ==
          "config.json: vocab_size: expected a whole number from 0 to 2147483647, got 1.5");
    CHECK(import_error(replaced(kQwenNext, "\"vocab_size\": 151936", "\"vocab_size\": -1")) ==
          "config.json: vocab_size: expected a whole number from 0 to 2147483647, got -1");
    CHECK(
        import_error(replaced(kQwenNext, "\"vocab_size\": 151936", "\"vocab_size\": 18446744073709551615")) ==
        "config.json: vocab_size: expected a whole number from 0 to 2147483647, got 18446744073709551615");
    CHECK(import_error(replaced(kGranite, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1")) ==
          "config.json: tie_word_embeddings: expected true or false, got 1");
    CHECK(import_error(replaced(kKimi, "\"short_conv_kernel_size\": 4,", "")) ==
          "config.json: linear_attn_config.short_conv_kernel_size: missing required key");
    CHECK(import_error(replaced(kKimi, "[4, 8, 12, 16, 20, 24, 27]", "4")) ==
          "config.json: linear_attn_config.full_attn_layers: expected a list of whole numbers, got 4");
    CHECK_THAT(
        import_error(replaced(kKimi, "\"linear_attn_config\": {", "\"linear_attn_config\": 1, \"x\": {")),
        ContainsSubstring("config.json: linear_attn_config: expected an object, got 1"));
    CHECK(import_error(replaced(replaced(kFalcon, "\"head_dim\": 128,", ""), "\"mamba_d_ssm\": 3072,", "")) ==
          "config.json: mamba_d_ssm: missing required key\n"
          "config.json: mamba_d_ssm: expected mamba_n_heads x mamba_d_head\n"
          "config.json: head_dim: missing required key");
}

TEST_CASE("what a model file cannot describe is refused, not dropped") {
    CHECK(import_error(replaced(kQwenNext, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [0]")) ==
          "config.json: mlp_only_layers: expected [], got [0]: not described by model files");
    CHECK(import_error(replaced(kNemotronSuper, "\"mlp_bias\": false", "\"mlp_bias\": true")) ==
          "config.json: mlp_bias: expected false, got true: not described by model files");
    CHECK(import_error(replaced(kQwenNext, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"")) ==
          "config.json: hidden_act: expected silu or relu2, got \"gelu\"");
    CHECK(import_error(replaced(kMiniMax, "0, 0, 1", "0, 0, 2")) ==
          "config.json: attn_type_list: expected 0 (lightning) or 1 (softmax), got 2");
    CHECK(import_error(replaced(kNemotronSuper, "MEMEMEM*", "MEMXMEM*")) ==
          "config.json: hybrid_override_pattern: expected the letters M * - E, got `X`");
    CHECK(import_error(replaced(kGranite, "\"num_hidden_layers\": 40", "\"num_hidden_layers\": 41")) ==
          "config.json: layer_types: expected as many layers as num_hidden_layers (41), got 40");
    CHECK(import_error(replaced(kFalcon, "\"num_hidden_layers\": 44", "\"num_hidden_layers\": 2000000000")) ==
          "config.json: num_hidden_layers: expected 1 to 1024, got 2000000000");
    CHECK(import_error(replaced(kQwenNext, "\"num_hidden_layers\": 48", "\"num_hidden_layers\": 0"))
              .starts_with("config.json: num_hidden_layers: expected 1 to 1024, got 0"));
    CHECK(
        import_error(replaced(kQwenNext, "\"full_attention_interval\": 4", "\"full_attention_interval\": 0"))
            .starts_with("config.json: full_attention_interval: expected at least 1, got 0"));
    CHECK(
        import_error(replaced(kQwenNext, "\"torch_dtype\": \"bfloat16\"", "\"torch_dtype\": \"float32\"")) ==
        "config.json: torch_dtype: expected null, got \"float32\": not described by model files");
    // What only the sizes together show is found by the reader of model files.
    CHECK_THAT(
        import_error(replaced(kQwenNext, "\"linear_num_value_heads\": 32", "\"linear_num_value_heads\": 33")),
        ContainsSubstring("config.json, as a model file:") &&
            ContainsSubstring("parts.linear.v_heads: expected a multiple of k_heads (16), got 33"));
    CHECK_THAT(import_error(replaced(kQwenNext, "\"hidden_size\": 2048", "\"hidden_size\": 0")),
               ContainsSubstring("hidden: expected an integer from 1 to 65536, got `0`"));
}

TEST_CASE("files that are no configuration") {
    CHECK(import_error("[1]") == "config.json: expected an object, got [1]");
    // Where the text stops making sense: at its end, behind the word `tru`, at the number.
    CHECK_THAT(placed_import_error("{\"model_type\": "), ContainsSubstring("config.json:1:16: no JSON: "));
    CHECK_THAT(placed_import_error("{\n  \"a\": tru\n}"), ContainsSubstring("config.json:2:11: no JSON: "));
    CHECK_THAT(placed_import_error("{\n  \"a\": 1,\n  \"b\": 1e400\n}"),
               ContainsSubstring("config.json:3:8: no JSON: number overflow"));
    CHECK(placed_import_error("{\n  \"a\": {\"b\": 1, \"b\": 2}\n}") ==
          "config.json:2:17: duplicate key `b`, first given in line 2");
    // Lists may repeat the keys of their entries; a quote inside a key does not end it.
    CHECK(placed_import_error("{\n \"x\\\"y\": [{\"b\": 1}, {\"b\": 1}],\n  \"model_type\": 3}") ==
          "config.json:3:3: model_type: expected a string, got 3");
    // A missing key: its object.
    CHECK_THAT(placed_import_error(replaced(kQwenDense, "\"hidden_size\": 5120,", "")),
               ContainsSubstring(": text_config.hidden_size: missing required key") &&
                   !ContainsSubstring("config.json: text_config"));
    CHECK_THAT(config_error([] { import_model("/tmp", "test"); }),
               ContainsSubstring("/tmp: expected a file, got a folder"));
    CHECK(import_error("{}") == "config.json: model_type: missing required key");
    CHECK(
        import_error("{\"model_type\": \"qwen3_nxt\"}") ==
        "config.json: model_type: expected one of qwen3_next, qwen3_5, qwen3_5_moe, nemotron_h, kimi_linear, "
        "granitemoehybrid, falcon_h1, minimax_m1, minimax_text_01, got \"qwen3_nxt\" (did you mean "
        "`qwen3_next`?)");
    CHECK(config_error([] { import_model("none/config.json", "test"); }) == "none/config.json: no such file");
}

}  // namespace
}  // namespace kvsim
