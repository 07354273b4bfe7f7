// A hybrid model as the simulator sees it: layers, sizes, and the bytes that follow from them.
// Formulas of parameter counts: sources beside each in model.cpp (public model code); exact against published totals.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"

namespace kvsim {

enum class FfnKind : std::uint8_t { kDense, kMoe };

struct FfnSpec {
    FfnKind kind = FfnKind::kDense;
    int intermediate = 0;         // dense: SwiGLU width
    int experts = 0;              // MoE: routed experts, of which top_k run per token
    int top_k = 0;
    int expert_intermediate = 0;
    int shared_intermediate = 0;  // MoE: width of the always active expert, 0 for none
};

struct AttentionSpec {  // full-attention layers: gated query, grouped KV heads
    int q_heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
};

struct LinearLayerSpec {  // linear-attention layers
    Family family = Family::kGdn;
    int k_heads = 0;
    int v_heads = 0;
    int k_dim = 0;
    int v_dim = 0;
    int conv_kernel = 0;
};

struct ModelSpec {
    std::string name;
    int linear_layers = 0;
    int full_layers = 0;
    int hidden = 0;
    int vocab = 0;
    bool tied_embeddings = false;
    LinearLayerSpec linear;
    AttentionSpec attention;
    FfnSpec ffn;

    int layers() const { return linear_layers + full_layers; }
};

// The kernels' shape of one linear layer on one GPU.
LinearShape linear_shape(const ModelSpec& model, StateFormat state);

// Parameters of the text model. body excludes embedding and head; active counts top_k of the experts.
struct ParameterCounts {
    std::int64_t linear_layer = 0;     // one linear mixer, without norms and FFN
    std::int64_t attention_layer = 0;  // one full-attention mixer
    std::int64_t ffn_layer = 0;
    std::int64_t ffn_layer_active = 0;
    std::int64_t body = 0;
    std::int64_t body_active = 0;
    std::int64_t embedding = 0;        // counted once; a tied head adds nothing
    std::int64_t head = 0;             // 0 when tied
    std::int64_t total() const { return body + embedding + head; }
};
ParameterCounts count_parameters(const ModelSpec& model);

// Bytes per request over all layers of the model; weights in bf16.
Bytes weight_bytes(const ModelSpec& model);
Bytes state_bytes_per_request(const ModelSpec& model, StateFormat state);   // one copy
Bytes conv_bytes_per_request(const ModelSpec& model);                       // channels x (kernel - 1), bf16, one copy
Bytes ring_bytes_per_request(const ModelSpec& model, int ring_capacity);    // C records in every linear layer
Bytes kv_bytes_per_token(const ModelSpec& model);                           // bf16 K and V of the full-attention layers

}  // namespace kvsim
