// Single operators, and the parts of a step that depend on more than its number of tokens: on rows, contexts,
// fills, flushes and prompts. The lists of a layer are made from them; the compiled cost prices them alone,
// step by step.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/traffic_linear.hpp"
#include "sim/cost/graph/operator.hpp"
#include "sim/cost/graph/operators.hpp"
#include "sim/model/parameters.hpp"

namespace kvsim {

inline MatrixFormat matrix_format(const WeightFormat& f) {
    if (f.type == WeightType::kFp4) return MatrixFormat::kFp4;
    if (f.type == WeightType::kFp8) return f.block_rows > 0 ? MatrixFormat::kFp8Block : MatrixFormat::kFp8;
    return MatrixFormat::kBf16;
}

// ---- single operators ----

inline Operator make_operator(std::string_view name, Pricing pricing, std::int64_t launches = 1) {
    Operator op;
    op.name = name;
    op.launches = launches;
    op.pricing = std::move(pricing);
    return op;
}

inline Operator element_wise_operator(std::string_view name, std::int64_t bytes) {
    return make_operator(name, ElementWise{}).own(Owner::kActivations, bytes);
}

// A weight matrix [n, k] and what it takes in memory.
struct Product {
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t weight_bytes = 0;
    MatrixFormat format = MatrixFormat::kBf16;
    std::int64_t batches = 1;  // equal parts of n that each have an input of their own

    bool operator==(const Product&) const = default;
};
Operator product_operator(std::string_view name, std::int64_t m, const Product& p);

// The same experts for another number of tokens of all ranks that share them: works out distinct experts,
// rows, bytes and FLOPs.
void set_tokens(Operator& op, ExpertsWork& work, std::int64_t tokens);

// ---- linear attention ----

struct LinearPart {
    LinearShape shape;
    int conv_kernel = 0;
    bool keeps_windows = false;     // verification stores the window after every token
    std::int64_t conv_weights = 0;  // bytes
    std::int64_t gate_weights = 0;  // A_log, dt_bias, D, read by whatever computes the gates
};
class PartWeights;
// Takes its vectors from the weights of the mixer.
LinearPart linear_part(const StepContext& context, const LinearMixer& mixer, PartWeights& weights);
// Its decode kernel.
Operator decode_operator(const LinearPart& part, Form form, const LinearWork& work);
// From the convolution to the output of the kernels, of rows that decode and of prompts, in a row.
void append_linear(const LinearPart& part, const StepShape& step, OperatorList& list);

// ---- full attention ----

struct AttentionPart {
    AttentionShape decode;   // as decode reads the cache
    AttentionShape prefill;  // as prefill computes
    // Latent attention: absorbed into queries and outputs in decode, expanded to keys and values in prefill.
    struct Latent {
        Product absorb_k, absorb_v, expand;
        bool operator==(const Latent&) const = default;
    };
    std::optional<Latent> latent;

    bool operator==(const AttentionPart&) const = default;
};
AttentionPart attention_part(const GqaMixer& mixer, PartWeights& weights);
AttentionPart attention_part(const MlaMixer& mixer, PartWeights& weights);
// Stores of K and V and attention over the cache, of rows that decode and of prompts, in a row.
// Other contexts of the same rows: `op` is the attention of rows that decode.
void set_contexts(Operator& op, const DecodeAttentionShape& contexts, std::int64_t tokens_per_row);
void append_attention(const AttentionPart& part, const StepShape& step, OperatorList& list);

// ---- end of the step ----

// Flushes beside the launches of decode rows.
void append_folds(const StepContext& context, const FoldShape& folds, OperatorList& list);
// Acceptance of drafts, what it commits, copies of states.
void append_end(const StepContext& context, const StepShape& step, OperatorList& list);

}  // namespace kvsim
