// A model as data: parts (mixers and FFNs), the kinds of layer that are made of them, and the order in which
// these stand. Nothing here knows a model by name; configs/models holds one YAML file for each.
//
// A layer adds to the residual stream once per sublayer: its mixers (one, or two side by side on one norm as
// in Falcon-H1), then its FFN. Qwen's layers have both, a block of Nemotron has one or the other. Each
// sublayer has an RMSNorm of `hidden` weights in front. Layers of one kind cost the same, so they are priced
// once and counted.
//
// What follows from it: parameters and weight bytes in parameters.hpp, bytes per request in
// request_bytes.hpp, the share of one rank in rank.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/shapes.hpp"

namespace kvsim {

// ---- parts -----------------------------------------------------------------------------------------------
// Each carries the name by which its YAML file, tables and messages call it. Heads and widths are those of
// the whole model, or of one rank after rank_model().

// Linear attention, sizes as in LinearShape: Mamba-2 has v_heads heads of v_dim channels, and k_heads groups
// of k_dim states.
struct LinearMixer {
    std::string name;
    Family family = Family::kGdn;
    int k_heads = 0;
    int v_heads = 0;
    int k_dim = 0;
    int v_dim = 0;
    int conv_kernel = 0;     // causal convolution over q, k and v; 0 for none (lightning)
    bool conv_bias = false;  // Mamba-2 has one
    bool gated_norm = true;  // norm of the output; without it the output is gated alone (Falcon-H1)

    bool operator==(const LinearMixer&) const = default;
};

// Full attention with grouped KV heads.
struct GqaMixer {
    std::string name;
    int q_heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    bool output_gate = false;  // the query projection also yields a gate of the output (Qwen3-Next, Qwen3.5)
    bool qk_norm = false;      // RMSNorm of head_dim on queries and on keys
    bool rope = false;         // rotates queries and keys: no weights, but an operator

    bool operator==(const GqaMixer&) const = default;
};

// Multi-head latent attention: the cache holds kv_latent + rope_dim values per token for all heads together.
struct MlaMixer {
    std::string name;
    int q_heads = 0;
    int q_latent = 0;  // 0: queries are projected directly
    int kv_latent = 0;
    int nope_dim = 0;  // of a query-key head: part without, and part with positions
    int rope_dim = 0;
    int v_dim = 0;
    bool rope = false;  // whether that part is rotated at all (Kimi-Linear: no)

    bool operator==(const MlaMixer&) const = default;
};

using Attention = std::variant<GqaMixer, MlaMixer>;

// kSwiglu has a gate beside the up projection: three matrices where kRelu2 has two.
enum class Activation : std::uint8_t { kSwiglu, kRelu2 };
inline constexpr std::array<std::string_view, 2> kActivationNames{"swiglu", "relu2"};

struct DenseFfn {
    std::string name;
    int width = 0;
    Activation activation = Activation::kSwiglu;

    bool operator==(const DenseFfn&) const = default;
};

struct MoeFfn {
    std::string name;
    int experts = 0;  // routed, of which top_k run per token
    int top_k = 0;
    int expert_width = 0;
    int shared_width = 0;  // of the experts that always run, as one; 0 for none
    int latent = 0;  // routed experts work on so many values instead of hidden (Nemotron-3); 0: on hidden
    bool shared_gate = false;  // sigmoid gate of hidden weights on the shared expert (Qwen)
    bool router_bias = false;  // one correction per expert (Nemotron, Kimi)
    Activation activation = Activation::kSwiglu;
    // Exponent of the power law that experts' popularity follows; without one they are routed uniformly.
    std::optional<double> power_law{};
    int expert_ranks = 1;  // ranks over which the experts are spread; set by rank_model() alone

    // Experts whose weights are here: all of them in a whole model.
    int experts_held() const { return experts / expert_ranks; }

    bool operator==(const MoeFfn&) const = default;
};

using Ffn = std::variant<DenseFfn, MoeFfn>;

// ---- model -----------------------------------------------------------------------------------------------

// At least one part. With both mixers they run side by side.
struct LayerKind {
    char letter = '?';  // in patterns
    std::optional<LinearMixer> linear;
    std::optional<Attention> attention;
    std::optional<Ffn> ffn;

    int sublayers() const { return (linear || attention ? 1 : 0) + (ffn ? 1 : 0); }

    bool operator==(const LayerKind&) const = default;
};

enum class WeightType : std::uint8_t { kBf16, kFp8, kFp4 };
inline constexpr std::array<std::string_view, 3> kWeightTypeNames{"bf16", "fp8", "fp4"};

// How a matrix is stored: elements, and one scale per block of [rows, cols]; no block, no scales. Scales of a
// whole tensor (one value) are not counted.
struct WeightFormat {
    WeightType type = WeightType::kBf16;
    int block_rows = 0;
    int block_cols = 0;
    int scale_bytes = 0;

    bool operator==(const WeightFormat&) const = default;
};

// Weights that quantised checkpoints store alike. kOther: norms, convolutions, decays, routers, gates, the
// projection of an MTP layer; always bf16.
enum class WeightGroup : std::uint8_t { kEmbedding, kHead, kMixers, kFfn, kExperts, kOther };
inline constexpr int kWeightGroupCount = 6;
inline constexpr std::array<std::string_view, kWeightGroupCount> kWeightGroupNames{
    "embedding", "head", "mixers", "ffn", "experts", "other"};

struct ModelSpec {
    std::string name;
    int hidden = 0;
    int vocab = 0;
    bool tied_embeddings = false;  // the head is the embedding matrix
    std::vector<LayerKind> kinds;  // letters distinct, each in pattern or mtp_pattern
    std::string pattern;           // the letter of every layer, in order
    std::string mtp_pattern;       // layers of the multi-token prediction module; empty: the model has none
    std::array<WeightFormat, kWeightGroupCount> formats{};  // by WeightGroup
    StateFormat state = StateFormat::kFp32;  // of linear layers, unless an experiment says otherwise

    int layers() const { return static_cast<int>(pattern.size()); }
    // Layers of a kind in the body.
    int count(const LayerKind& kind) const;
    const LayerKind& kind(char letter) const;

    bool operator==(const ModelSpec&) const = default;
};

// Layers of the body that hold a linear mixer, and full attention.
int linear_layers(const ModelSpec& model);
int attention_layers(const ModelSpec& model);

// The linear mixer of the model; null when it has none. All linear layers of a model are alike: its reader
// refuses a second linear part.
const LinearMixer* linear_mixer(const ModelSpec& model);

// The kernels' shape of one linear layer, with the heads that the mixer holds.
LinearShape linear_shape(const LinearMixer& mixer, StateFormat state,
                         RecordFormat records = RecordFormat::kBf16);

// The name of the part that is held.
std::string_view part_name(const Attention& attention);
std::string_view part_name(const Ffn& ffn);

}  // namespace kvsim
