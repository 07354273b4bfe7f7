// Readers of model_type, one row of kModelTypes each.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sim/config/json_fields.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

// A model on its way from config.json. name, hidden, vocab and embeddings are there when a reader starts.
struct Import {
    JsonFields fields;  // those of the text model
    ModelSpec& model;
    std::vector<std::string>& remarks;

    // Appends a layer; the first one of its letter describes the kind.
    void add_layer(const LayerKind& kind);
    // num_hidden_layers; 0 with a mistake noted when that is more than a model file holds.
    int layers();
    // The list under `key` must have that many entries.
    void expect_layers(std::size_t listed, std::string_view key);
};

struct ModelType {
    std::string_view name;
    bool nested;  // the text model stands in text_config, beside a vision tower that is left out
    void (*read)(Import& in);
};

void read_qwen(Import& in);
void read_nemotron(Import& in);
void read_kimi(Import& in);
void read_granite(Import& in);
void read_falcon(Import& in);
void read_minimax(Import& in);

inline constexpr std::array<ModelType, 9> kModelTypes{{{"qwen3_next", false, read_qwen},
                                                       {"qwen3_5", true, read_qwen},
                                                       {"qwen3_5_moe", true, read_qwen},
                                                       {"nemotron_h", false, read_nemotron},
                                                       {"kimi_linear", false, read_kimi},
                                                       {"granitemoehybrid", false, read_granite},
                                                       {"falcon_h1", false, read_falcon},
                                                       {"minimax_m1", false, read_minimax},
                                                       {"minimax_text_01", false, read_minimax}}};

}  // namespace kvsim
