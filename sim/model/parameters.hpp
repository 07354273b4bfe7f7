// Weights of a model, matrix by matrix, and what they add up to: parameters, active parameters, bytes.
// The only copy of these formulas; exact against published totals. Sources stand beside each in
// parameters.cpp. Applied to a model of rank_model(), they give the weights that one rank holds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

// `copies` matrices [rows, cols] as [outputs, inputs]; a vector is [1, n]. A token uses `active` of them:
// top_k of the experts' matrices, all of any other.
struct WeightMatrix {
    std::string_view name;
    WeightGroup group = WeightGroup::kOther;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t copies = 1;
    std::int64_t active = 1;
};

// Matrices of a part, in the order in which a forward pass meets them; the norm before a sublayer is not
// among them. `hidden` is the model's. A routed expert's gate and up projections are one matrix, as engines
// store them.
std::vector<WeightMatrix> weights(const LinearMixer& mixer, std::int64_t hidden);
std::vector<WeightMatrix> weights(const Attention& mixer, std::int64_t hidden);
std::vector<WeightMatrix> weights(const Ffn& ffn, std::int64_t hidden);

// Bytes of one matrix: rows x cols elements, and a scale for every block that they touch.
Bytes matrix_bytes(std::int64_t rows, std::int64_t cols, const WeightFormat& format);

struct WeightCount {
    std::int64_t parameters = 0;
    std::int64_t active =
        0;  // that one token uses; of a rank with its share of the experts: uses on all ranks
    Bytes bytes;

    WeightCount& operator+=(const WeightCount& other);
    friend WeightCount operator*(const WeightCount& count, std::int64_t times);
    bool operator==(const WeightCount&) const = default;
};

// Of one layer.
struct LayerWeights {
    WeightCount linear;
    WeightCount attention;
    WeightCount ffn;
    WeightCount norms;

    WeightCount total() const;
};
LayerWeights layer_weights(const ModelSpec& model, const LayerKind& kind);

// Owners of a model's weights; sums to total(). The text model is what serves without speculation.
struct ModelWeights {
    WeightCount body;       // all layers and the final norm
    WeightCount embedding;  // counted once, active as a whole; a forward pass reads one row per token
    WeightCount head;       // nothing when it is the embedding
    WeightCount mtp;        // its own layers, projection and norms; shares embedding and head

    WeightCount text() const;
    WeightCount total() const;
};
ModelWeights model_weights(const ModelSpec& model);

// Bytes of the text model.
Bytes weight_bytes(const ModelSpec& model);

}  // namespace kvsim
