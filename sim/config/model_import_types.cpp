// Field names: the configuration classes of transformers (`Qwen3NextConfig`, `Qwen3_5TextConfig`,
// `NemotronHConfig`, `GraniteMoeHybridConfig`, `FalconH1Config`) and of the model repositories (Kimi-Linear,
// MiniMax-M1).
#include "sim/config/model_import_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace kvsim {

void Import::add_layer(const LayerKind& kind) {
    if (model.pattern.find(kind.letter) == std::string::npos) model.kinds.push_back(kind);
    model.pattern += kind.letter;
}

int Import::layers() {
    constexpr int kMostLayers = 1 << 10;  // as in a model file
    const int count = fields.integer("num_hidden_layers");
    if (count >= 1 && count <= kMostLayers) return count;
    fields.mistake("num_hidden_layers", fmt::format("expected 1 to {}, got {}", kMostLayers, count));
    return 0;
}

void Import::expect_layers(std::size_t listed, std::string_view key) {
    const int count = layers();
    if (static_cast<std::size_t>(count) != listed) {
        fields.mistake(
            key, fmt::format("expected as many layers as num_hidden_layers ({}), got {}", count, listed));
    }
}

namespace {

// ---- fields that several types share ---------------------------------------------------------------------

Activation read_activation(JsonFields& fields, std::string_view key) {
    const std::string word = fields.text(key);
    if (word == "relu2") return Activation::kRelu2;
    if (word != "silu" && !word.empty())
        fields.mistake(key, fmt::format("expected silu or relu2, got \"{}\"", word));
    return Activation::kSwiglu;
}

void read_state(Import& in, std::string_view key) {
    if (!in.fields.has(key)) return;
    static constexpr std::array<std::pair<std::string_view, StateFormat>, 3> kWords{
        {{"float32", StateFormat::kFp32}, {"bfloat16", StateFormat::kBf16}, {"float16", StateFormat::kFp16}}};
    const std::string word = in.fields.text(key);
    const auto* found = std::ranges::find(kWords, word, &std::pair<std::string_view, StateFormat>::first);
    if (found != kWords.end()) {
        in.model.state = found->second;
    } else {
        in.fields.mistake(key, fmt::format("expected float32, bfloat16 or float16, got \"{}\"", word));
    }
}

// ---- Qwen3-Next, Qwen3.5 ---------------------------------------------------------------------------------

Ffn read_qwen_ffn(JsonFields& fields) {
    const Activation activation = read_activation(fields, "hidden_act");
    if (fields.integer("num_experts", 0) == 0)
        return DenseFfn{"ffn", fields.integer("intermediate_size"), activation};
    MoeFfn f{"ffn", fields.integer("num_experts"), fields.integer("num_experts_per_tok"),
             fields.integer("moe_intermediate_size"), fields.integer("shared_expert_intermediate_size", 0)};
    f.shared_gate = f.shared_width > 0;
    f.activation = activation;
    fields.expect("mlp_only_layers", nlohmann::ordered_json::array());
    fields.expect("decoder_sparse_step", 1);
    fields.ignore({"intermediate_size"});  // of dense layers, of which there are none
    return f;
}

std::vector<std::string> read_qwen_layers(Import& in) {
    if (in.fields.has("layer_types")) {
        in.fields.ignore({"full_attention_interval"});
        return in.fields.texts("layer_types");
    }
    const int interval = in.fields.integer("full_attention_interval");
    if (interval < 1)
        in.fields.mistake("full_attention_interval", fmt::format("expected at least 1, got {}", interval));
    std::vector<std::string> types;
    for (int i = 1; i <= in.layers(); ++i)
        types.emplace_back(interval > 0 && i % interval == 0 ? "full_attention" : "linear_attention");
    return types;
}

}  // namespace

void read_qwen(Import& in) {
    JsonFields& f = in.fields;
    const LinearMixer linear{"linear",
                             Family::kGdn,
                             f.integer("linear_num_key_heads"),
                             f.integer("linear_num_value_heads"),
                             f.integer("linear_key_head_dim"),
                             f.integer("linear_value_head_dim"),
                             f.integer("linear_conv_kernel_dim")};
    const GqaMixer attention{"attention",
                             f.integer("num_attention_heads"),
                             f.integer("num_key_value_heads"),
                             f.integer("head_dim"),
                             f.boolean("attn_output_gate", true),
                             true,
                             true};
    const Ffn ffn = read_qwen_ffn(f);
    const std::vector<std::string> types = read_qwen_layers(in);
    in.expect_layers(types.size(), "layer_types");
    for (const std::string& type : types) {
        if (type == "linear_attention") {
            in.add_layer({'L', linear, {}, ffn});
        } else if (type == "full_attention") {
            in.add_layer({'F', {}, attention, ffn});
        } else {
            f.mistake("layer_types",
                      fmt::format("expected linear_attention or full_attention, got \"{}\"", type));
        }
    }
    read_state(in, "mamba_ssm_dtype");
    f.expect("attention_bias", false);
    f.expect("mtp_use_dedicated_embeddings", false);
    if (!f.has("mtp_num_hidden_layers"))
        in.remarks.emplace_back(
            "nothing says whether there is an MTP layer: none is written; `mtp: F` adds one");
    in.model.mtp_pattern.assign(
        static_cast<std::size_t>(std::min(f.integer("mtp_num_hidden_layers", 0), 1 << 10)), 'F');
    f.ignore({"norm_topk_prob", "router_aux_loss_coef", "output_router_logits", "use_sliding_window"});
}

namespace {

// ---- Nemotron-H, Nemotron-3 ------------------------------------------------------------------------------

// A pattern string, or the list of words that newer versions of transformers write.
std::string read_nemotron_pattern(JsonFields& fields, std::string_view pattern_key,
                                  std::string_view list_key) {
    if (!fields.has(list_key)) return fields.text(pattern_key);
    fields.ignore({pattern_key});
    static constexpr std::array<std::pair<std::string_view, char>, 6> kWords{{{"mamba", 'M'},
                                                                              {"linear_attention", 'M'},
                                                                              {"attention", '*'},
                                                                              {"full_attention", '*'},
                                                                              {"mlp", '-'},
                                                                              {"moe", 'E'}}};
    std::string pattern;
    for (const std::string& word : fields.texts(list_key)) {
        const auto* found = std::ranges::find(kWords, word, &std::pair<std::string_view, char>::first);
        if (found == kWords.end())
            fields.mistake(list_key, fmt::format("no such kind of layer: \"{}\"", word));
        pattern += found == kWords.end() ? 'M' : found->second;
    }
    return pattern;
}

LayerKind read_nemotron_kind(JsonFields& f, char letter) {
    switch (letter) {
        case 'M':
            return {letter,
                    LinearMixer{"mamba", Family::kMamba2, f.integer("n_groups"), f.integer("mamba_num_heads"),
                                f.integer("ssm_state_size"), f.integer("mamba_head_dim"),
                                f.integer("conv_kernel"), f.boolean("use_conv_bias")},
                    {},
                    {}};
        case '*':
            return {letter,
                    {},
                    GqaMixer{"attention", f.integer("num_attention_heads"), f.integer("num_key_value_heads"),
                             f.integer(f.has("head_dim") ? "head_dim" : "attention_head_dim")},
                    {}};
        case '-':
            return {letter,
                    {},
                    {},
                    DenseFfn{"mlp", f.integer("intermediate_size"), read_activation(f, "mlp_hidden_act")}};
        case 'E': {
            MoeFfn moe{"moe",
                       f.integer("n_routed_experts"),
                       f.integer("num_experts_per_tok"),
                       f.integer("moe_intermediate_size"),
                       f.integer("moe_shared_expert_intermediate_size"),
                       f.integer("moe_latent_size", 0)};
            f.expect("n_shared_experts", 1);
            moe.router_bias = true;
            moe.activation = read_activation(f, "mlp_hidden_act");
            return {letter, {}, {}, moe};
        }
        default:
            return {};
    }
}

}  // namespace

void read_nemotron(Import& in) {
    JsonFields& f = in.fields;
    const std::string pattern = read_nemotron_pattern(f, "hybrid_override_pattern", "layers_block_type");
    in.expect_layers(pattern.size(), "hybrid_override_pattern");
    for (const char letter : pattern) {
        if (std::string_view("M*-E").find(letter) == std::string_view::npos) {
            f.mistake("hybrid_override_pattern",
                      fmt::format("expected the letters M * - E, got `{}`", letter));
            break;
        }
        if (in.model.pattern.find(letter) != std::string::npos) {
            in.model.pattern += letter;
        } else {
            in.add_layer(read_nemotron_kind(f, letter));
        }
    }
    const int mtp_modules = f.integer("num_nextn_predict_layers", 0);
    if (mtp_modules > 1)
        f.mistake("num_nextn_predict_layers", fmt::format("expected 0 or 1, got {}", mtp_modules));
    if (mtp_modules == 1)
        in.model.mtp_pattern =
            read_nemotron_pattern(f, "mtp_hybrid_override_pattern", "mtp_layers_block_type");
    for (const char* key : {"mamba_ssm_cache_dtype", "mamba_ssm_dtype"}) read_state(in, key);
    for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"})
        f.expect(key, false);
    f.ignore({"chunk_size",
              "expand",
              "intermediate_size",
              "layer_norm_epsilon",
              "mamba_hidden_act",
              "moe_shared_expert_overlap",
              "mtp_hybrid_override_pattern",
              "n_group",
              "norm_eps",
              "norm_topk_prob",
              "num_logits_to_keep",
              "rescale_prenorm_residual",
              "residual_in_fp32",
              "routed_scaling_factor",
              "time_step_floor",
              "time_step_limit",
              "time_step_max",
              "time_step_min",
              "time_step_rank",
              "topk_group",
              "use_mamba_kernels",
              "hidden_dropout",
              "mlp_hidden_act",
              "attention_head_dim"});
}

// ---- Kimi-Linear -----------------------------------------------------------------------------------------

void read_kimi(Import& in) {
    JsonFields& f = in.fields;
    JsonFields linear = f.object("linear_attn_config");
    const int heads = linear.integer("num_heads");
    const int dim = linear.integer("head_dim");
    const LinearMixer kda{
        "kda", Family::kKda, heads, heads, dim, dim, linear.integer("short_conv_kernel_size")};
    const std::vector<int> full_layers = linear.integers("full_attn_layers");  // counted from one
    linear.ignore({"kda_layers"});
    linear.list_unread();
    const MlaMixer mla{"mla",
                       f.integer("num_attention_heads"),
                       f.integer("q_lora_rank", 0),
                       f.integer("kv_lora_rank"),
                       f.integer("qk_nope_head_dim"),
                       f.integer("qk_rope_head_dim"),
                       f.integer("v_head_dim"),
                       !f.boolean("mla_use_nope")};
    const Activation activation = read_activation(f, "hidden_act");
    const DenseFfn dense{"dense", f.integer("intermediate_size"), activation};
    MoeFfn moe{"moe", f.integer("num_experts"), f.integer("num_experts_per_token"),
               f.integer("moe_intermediate_size"), 0};
    moe.shared_width = static_cast<int>(std::min<std::int64_t>(
        std::int64_t{moe.expert_width} * f.integer("num_shared_experts"), std::numeric_limits<int>::max()));
    moe.router_bias = true;
    moe.activation = activation;
    const int dense_layers = f.integer("first_k_dense_replace");
    const int layers = in.layers();
    for (int layer = 1; layer <= layers; ++layer) {
        const bool full = std::ranges::find(full_layers, layer) != full_layers.end();
        const Ffn ffn = layer <= dense_layers ? Ffn(dense) : Ffn(moe);
        if (full) {
            in.add_layer({layer <= dense_layers ? 'B' : 'A', {}, mla, ffn});
        } else {
            in.add_layer({layer <= dense_layers ? 'D' : 'K', kda, {}, ffn});
        }
    }
    f.expect("moe_layer_freq", 1);
    f.expect("num_nextn_predict_layers", 0);
    f.ignore({"head_dim", "num_key_value_heads", "model_max_length", "moe_renormalize",
              "moe_router_activation_func", "num_expert_group", "routed_scaling_factor", "topk_group",
              "use_grouped_topk"});
}

namespace {

// ---- Granite-4.0-H, Falcon-H1 ----------------------------------------------------------------------------

// The names that Bamba introduced.
LinearMixer read_mamba(JsonFields& f) {
    f.expect("mamba_proj_bias", false);
    f.ignore({"mamba_expand", "mamba_chunk_size"});
    return {"mamba",
            Family::kMamba2,
            f.integer("mamba_n_groups"),
            f.integer("mamba_n_heads"),
            f.integer("mamba_d_state"),
            f.integer("mamba_d_head"),
            f.integer("mamba_d_conv"),
            f.boolean("mamba_conv_bias")};
}

}  // namespace

void read_granite(Import& in) {
    JsonFields& f = in.fields;
    const LinearMixer mamba = read_mamba(f);
    const int heads = f.integer("num_attention_heads");
    const int head_dim = heads > 0 ? in.model.hidden / heads : 0;
    const GqaMixer attention{
        "attention", heads, f.integer("num_key_value_heads"),           f.integer("head_dim", head_dim),
        false,       false, f.text("position_embedding_type") == "rope"};
    const Activation activation = read_activation(f, "hidden_act");
    const int shared = f.integer("shared_intermediate_size");
    Ffn ffn = DenseFfn{"mlp", shared, activation};  // Granite-4.0-H-Micro has no experts
    if (f.integer("num_local_experts") > 0) {
        MoeFfn moe{"moe", f.integer("num_local_experts"), f.integer("num_experts_per_tok"),
                   f.integer("intermediate_size"), shared};
        moe.activation = activation;
        ffn = moe;
    }
    const std::vector<std::string> types = f.texts("layer_types");
    in.expect_layers(types.size(), "layer_types");
    for (const std::string& type : types) {
        if (type == "mamba") {
            in.add_layer({'M', mamba, {}, ffn});
        } else if (type == "attention") {
            in.add_layer({'*', {}, attention, ffn});
        } else {
            f.mistake("layer_types", fmt::format("expected mamba or attention, got \"{}\"", type));
        }
    }
    f.expect("attention_bias", false);
    f.ignore({"attention_multiplier", "embedding_multiplier", "init_method", "intermediate_size",
              "logits_scaling", "normalization_function", "num_experts_per_tok", "output_router_logits",
              "residual_multiplier", "router_aux_loss_coef"});
}

void read_falcon(Import& in) {
    JsonFields& f = in.fields;
    LinearMixer mamba = read_mamba(f);
    mamba.gated_norm = f.boolean("mamba_rms_norm");
    if (std::int64_t{mamba.v_heads} * mamba.v_dim != f.integer("mamba_d_ssm"))
        f.mistake("mamba_d_ssm", "expected mamba_n_heads x mamba_d_head");
    const GqaMixer attention{"attention",
                             f.integer("num_attention_heads"),
                             f.integer("num_key_value_heads"),
                             f.integer("head_dim"),
                             false,
                             false,
                             true};
    const DenseFfn ffn{"ffn", f.integer("intermediate_size"), read_activation(f, "hidden_act")};
    for (int layer = in.layers(); layer > 0; --layer) in.add_layer({'H', mamba, attention, ffn});
    f.expect("mamba_use_mlp", true);
    for (const char* key : {"attention_bias", "mlp_bias", "projectors_bias"}) f.expect(key, false);
    f.ignore({"attention_in_multiplier", "attention_out_multiplier", "embedding_multiplier", "key_multiplier",
              "lm_head_multiplier", "mamba_norm_before_gate", "mlp_expansion_factor", "mlp_multipliers",
              "num_logits_to_keep", "ssm_in_multiplier", "ssm_multipliers", "ssm_out_multiplier",
              "time_step_floor", "time_step_max", "time_step_min"});
}

// ---- MiniMax-01, MiniMax-M1 ------------------------------------------------------------------------------

void read_minimax(Import& in) {
    JsonFields& f = in.fields;
    const int heads = f.integer("num_attention_heads");
    const int dim = f.integer("head_dim");
    const LinearMixer lightning{"lightning", Family::kLightning, heads, heads, dim, dim, 0};
    const GqaMixer attention{"attention", heads, f.integer("num_key_value_heads"), dim, false, false, true};
    MoeFfn moe{"moe", f.integer("num_local_experts"), f.integer("num_experts_per_tok"),
               f.integer("intermediate_size"), f.integer("shared_intermediate_size", 0)};
    moe.activation = read_activation(f, "hidden_act");
    const std::vector<int> types = f.integers("attn_type_list");
    in.expect_layers(types.size(), "attn_type_list");
    for (const int type : types) {
        if (type == 0) {
            in.add_layer({'L', lightning, {}, moe});
        } else if (type == 1) {
            in.add_layer({'A', {}, attention, moe});
        } else {
            f.mistake("attn_type_list", fmt::format("expected 0 (lightning) or 1 (softmax), got {}", type));
        }
    }
    f.ignore({"layernorm_full_attention_alpha", "layernorm_full_attention_beta",
              "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", "layernorm_mlp_alpha",
              "layernorm_mlp_beta", "output_router_logits", "postnorm", "rotary_dim", "router_aux_loss_coef",
              "router_jitter_noise", "shared_moe_mode"});
}

}  // namespace kvsim
