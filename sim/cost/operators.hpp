// The operators of one forward pass on one GPU, as SGLang launches them for the Qwen3-Next and Qwen3.5 family
// with bf16 weights (`srt/models/qwen3_5.py`, `qwen2_moe.py`, `layers/attention/linear/gdn_backend.py`): one
// walk, visited by whoever needs the list. Sources of the single kernels stand beside their bytes in
// kernels/traffic_*.hpp.
//
// Left out: padding of a batch to a captured graph size, and the overlap of the two streams that SGLang uses
// inside a graph: operators follow one another.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "kernels/traffic_attention.hpp"
#include "kernels/traffic_elementwise.hpp"
#include "kernels/traffic_gemm.hpp"
#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_linear_layer.hpp"
#include "kernels/traffic_moe.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

// One operator of one layer, alike in `layers` of them.
struct OperatorWork {
    std::string_view name;
    std::int64_t layers = 1;
    std::int64_t launches = 1;  // nodes of the graph, per layer
    ByteLedger bytes{};
    std::int64_t flops = 0;
    const LinearWork* linear = nullptr;  // decode kernel of linear attention: priced by its fit
    Form form = Form::kRecurrent;        // of that kernel

    std::int64_t total_bytes = 0;  // sum of bytes

    OperatorWork& own(Owner owner, std::int64_t n) {
        bytes[static_cast<std::size_t>(owner)] += Bytes(n);
        total_bytes += n;
        return *this;
    }
};

// The models that can be priced: GDN layers and gated attention layers, each with the same FFN, in bf16.
struct PricedModel {
    std::int64_t hidden = 0;
    std::int64_t vocab = 0;
    std::int64_t linear_layers = 0;
    std::int64_t full_layers = 0;
    LinearMixer linear;
    GqaMixer attention;
    Ffn ffn;

    std::int64_t layers() const { return linear_layers + full_layers; }

    // Throws ConfigError for another model.
    explicit PricedModel(const ModelSpec& model) : hidden(model.hidden), vocab(model.vocab) {
        bool known = true;
        for (const LayerKind& kind : model.kinds) {
            const auto* gated = kind.attention ? std::get_if<GqaMixer>(&*kind.attention) : nullptr;
            const bool gdn = kind.linear && kind.linear->family == Family::kGdn && !kind.attention;
            const bool full = !kind.linear && gated != nullptr && gated->output_gate && gated->qk_norm;
            known = known && (gdn || full) && kind.ffn && (ffn_name().empty() || ffn == *kind.ffn);
            if (!known) break;
            ffn = *kind.ffn;
            if (gdn) linear = *kind.linear;
            if (full) attention = *gated;
            (gdn ? linear_layers : full_layers) += model.count(kind);
        }
        for (const WeightFormat& format : model.formats) known = known && format == WeightFormat{};
        if (known) return;
        throw_mistake(
            {"model " + model.name}, "",
            "steps can be priced for models of GDN layers and gated attention layers with one FFN, in "
            "bf16; for this one only `kvsim capacity` and `kvsim model show` work");
    }

  private:
    std::string_view ffn_name() const { return part_name(ffn); }
};

// Walks the operators of a model. Everything that does not depend on the step is computed once.
class OperatorWalk {
  public:
    OperatorWalk(const ModelSpec& model, StateFormat state)
        : model_(model),
          linear_(linear_shape(model_.linear, state)),
          attention_{model_.attention.q_heads, model_.attention.kv_heads, model_.attention.head_dim} {
        if (const auto* moe = std::get_if<MoeFfn>(&model_.ffn))
            moe_ = {model.hidden, moe->experts, moe->top_k, moe->expert_width};
    }

    const LinearShape& linear_layer() const { return linear_; }

    // visit(const OperatorWork&), in the order of execution.
    template <class Visit>
    void operator()(const StepShape& step, Visit&& visit) const {
        const std::int64_t tokens = step.tokens();
        visit(element_wise("embedding", 1, 1, tokens, 2 * h()).own(Owner::kWeights, 2 * h() * tokens));
        if (model_.linear_layers > 0) linear_layers(step, tokens, visit);
        if (model_.full_layers > 0) attention_layers(step, tokens, visit);
        visit(norm("ffn.norm", model_.layers(), tokens));
        if (const auto* dense = std::get_if<DenseFfn>(&model_.ffn)) {
            dense_ffn(*dense, tokens, visit);
        } else {
            moe_ffn(std::get<MoeFfn>(model_.ffn), tokens, visit);
        }
        visit(norm("final_norm", 1, tokens));
        if (step.logit_rows > 0) logits(step.logit_rows, visit);
    }

  private:
    std::int64_t h() const { return model_.hidden; }

    // These return a named object, which no one copies: the walk runs once per simulated step.
    static OperatorWork gemm(std::string_view name, std::int64_t layers, std::int64_t m, std::int64_t n,
                             std::int64_t k) {
        return from_gemm(name, layers, 1, gemm_traffic(m, n, k));
    }
    static OperatorWork from_gemm(std::string_view name, std::int64_t layers, std::int64_t launches,
                                  const GemmTraffic& t) {
        OperatorWork op{name, layers, launches};
        op.flops = t.flops;
        op.own(Owner::kWeights, t.weights).own(Owner::kActivations, t.activations);
        return op;
    }
    static OperatorWork element_wise(std::string_view name, std::int64_t layers, std::int64_t launches,
                                     std::int64_t rows, std::int64_t bytes_per_row) {
        OperatorWork op{name, layers, launches};
        op.own(Owner::kActivations, rows * bytes_per_row);
        return op;
    }
    OperatorWork norm(std::string_view name, std::int64_t layers, std::int64_t tokens) const {
        OperatorWork op = element_wise(name, layers, 1, tokens, add_norm_bytes(h()));
        op.own(Owner::kWeights, 2 * h());
        return op;
    }
    static OperatorWork from_attention(std::string_view name, std::int64_t layers,
                                       const AttentionTraffic& t) {
        OperatorWork op{name, layers};
        op.flops = t.flops;
        op.own(Owner::kKvRead, t.kv_read)
            .own(Owner::kKvWrite, t.kv_write)
            .own(Owner::kActivations, t.activations);
        return op;
    }
    OperatorWork convolution(std::string_view name, std::int64_t sequences, std::int64_t tokens) const {
        const ConvTraffic t = conv_traffic(linear_, model_.linear.conv_kernel, sequences, tokens);
        OperatorWork op{name, model_.linear_layers};
        op.flops = t.flops;
        op.own(Owner::kWeights, t.weights)
            .own(Owner::kConvRead, t.window_read)
            .own(Owner::kConvWrite, t.window_write)
            .own(Owner::kActivations, t.activations);
        return op;
    }
    // A_log and dt_bias, read by whatever computes the gates.
    std::int64_t gate_weights() const { return 2LL * 2 * linear_.v_heads; }

    template <class Visit>
    void linear_layers(const StepShape& step, std::int64_t tokens, Visit& visit) const {
        const std::int64_t layers = model_.linear_layers;
        const std::int64_t values = std::int64_t{linear_.v_heads} * linear_.v_dim;
        const std::int64_t keys = std::int64_t{linear_.k_heads} * linear_.k_dim;
        visit(norm("linear.norm", layers, tokens));
        visit(gemm("linear.in_proj_qkvz", layers, tokens, 2 * keys + 2 * values, h()));
        visit(gemm("linear.in_proj_ba", layers, tokens, 2LL * linear_.v_heads, h()));
        visit(element_wise("linear.split", layers, 1, tokens, split_projection_bytes(linear_)));
        linear_decode(step, visit);
        if (step.prefill.new_tokens > 0) linear_prefill(step.prefill, visit);
        visit(element_wise("linear.gated_norm", layers, 1, tokens, gated_norm_bytes(linear_))
                  .own(Owner::kWeights, 2LL * linear_.v_dim));
        visit(gemm("linear.out_proj", layers, tokens, h(), values));
    }

    template <class Visit>
    void linear_decode(const StepShape& step, Visit& visit) const {
        static constexpr std::array<std::string_view, kFormCount> kNames{
            "linear.recurrent", "linear.buffered", "linear.direct", "linear.verify_stored",
            "linear.verify_buffered"};
        std::int64_t sequences = 0;
        std::int64_t tokens = 0;
        for (const LinearWork& w : step.linear) {
            sequences += w.sequences;
            tokens += w.new_tokens;
        }
        if (sequences == 0) return;
        visit(convolution("linear.conv", sequences, tokens));
        for (std::size_t i = 0; i < step.linear.size(); ++i) {
            const LinearWork& w = step.linear[i];
            if (w.sequences == 0) continue;
            const LinearTraffic t = linear_traffic(linear_, static_cast<Form>(i), w);
            OperatorWork op{kNames[i], model_.linear_layers};
            op.flops = t.flops;
            op.linear = &w;
            op.form = static_cast<Form>(i);
            visit(op.own(Owner::kWeights, gate_weights())
                      .own(Owner::kStateRead, t.state_read)
                      .own(Owner::kStateWrite, t.state_write)
                      .own(Owner::kBufferRead, t.buffer_read)
                      .own(Owner::kBufferWrite, t.buffer_write)
                      .own(Owner::kActivations, t.io_read + t.io_write));
        }
    }

    template <class Visit>
    void linear_prefill(const PrefillShape& prefill, Visit& visit) const {
        // FlashInfer's chunk kernel on Hopper: l2norm of q and of k, exp(g), gather of states, two index
        // kernels, the kernel, states back.
        constexpr std::int64_t kChunkLaunches = 8;
        visit(convolution("linear.conv_prefill", prefill.sequences, prefill.new_tokens));
        visit(element_wise("linear.split_gates_prefill", model_.linear_layers, 2, prefill.new_tokens,
                           prefill_split_gates_bytes(linear_))
                  .own(Owner::kWeights, gate_weights()));
        const ChunkPrefillTraffic t = chunk_prefill_traffic(linear_, prefill.sequences, prefill.new_tokens);
        OperatorWork op{"linear.chunk_prefill", model_.linear_layers, kChunkLaunches};
        op.flops = t.flops;
        visit(op.own(Owner::kStateRead, t.state_read)
                  .own(Owner::kStateWrite, t.state_write)
                  .own(Owner::kActivations, t.activations));
    }

    template <class Visit>
    void attention_layers(const StepShape& step, std::int64_t tokens, Visit& visit) const {
        const std::int64_t layers = model_.full_layers;
        const std::int64_t queries = std::int64_t{attention_.q_heads} * attention_.head_dim;
        const std::int64_t keys = std::int64_t{attention_.kv_heads} * attention_.head_dim;
        visit(norm("attention.norm", layers, tokens));
        visit(gemm("attention.qkv_proj", layers, tokens, 2 * queries + 2 * keys, h()));
        visit(element_wise("attention.qk_norm_rope", layers, 1, tokens, qk_norm_rope_bytes(attention_))
                  .own(Owner::kWeights, 2LL * 2 * attention_.head_dim));
        visit(from_attention("attention.kv_store", layers, kv_store_traffic(attention_, tokens)));
        if (step.decode.sequences > 0) {
            visit(from_attention(
                "attention.decode", layers,
                attention_decode_traffic(attention_, step.decode.sequences, step.decode.context_sum)));
        }
        if (step.prefill.new_tokens > 0) {
            visit(from_attention(
                "attention.prefill", layers,
                attention_prefill_traffic(attention_, step.prefill.new_tokens, step.prefill.cached_tokens,
                                          step.prefill.query_key_pairs)));
        }
        visit(element_wise("attention.gate", layers, 1, tokens, attention_gate_bytes(attention_)));
        visit(gemm("attention.o_proj", layers, tokens, h(), queries));
    }

    template <class Visit>
    void dense_ffn(const DenseFfn& ffn, std::int64_t tokens, Visit& visit) const {
        const std::int64_t layers = model_.layers();
        const std::int64_t width = ffn.width;
        visit(gemm("ffn.gate_up", layers, tokens, 2 * width, h()));
        visit(element_wise("ffn.silu_mul", layers, 1, tokens, silu_mul_bytes(width)));
        visit(gemm("ffn.down", layers, tokens, h(), width));
    }

    template <class Visit>
    void moe_ffn(const MoeFfn& ffn, std::int64_t tokens, Visit& visit) const {
        const std::int64_t layers = model_.layers();
        const std::int64_t shared = ffn.shared_width;
        const double distinct = expected_distinct_experts(moe_, tokens);
        if (shared > 0) {
            visit(element_wise("moe.clone", layers, 1, tokens, moe_clone_bytes(h())));
            visit(gemm("moe.shared_gate_up", layers, tokens, 2 * shared, h()));
            visit(element_wise("moe.shared_silu_mul", layers, 1, tokens, silu_mul_bytes(shared)));
            visit(gemm("moe.shared_down", layers, tokens, h(), shared));
        }
        visit(gemm("moe.router", layers, tokens, moe_.experts, h()));
        visit(element_wise("moe.top_k", layers, 2, tokens, moe_top_k_bytes(moe_)));  // zero fill and gate
        visit(element_wise("moe.align", layers, 2, tokens, moe_align_bytes(moe_)));  // count and sort
        visit(from_gemm("moe.experts_gate_up", layers, 1, moe_gate_up_traffic(moe_, tokens, distinct)));
        visit(element_wise("moe.experts_silu_mul", layers, 1, tokens * moe_.top_k,
                           silu_mul_bytes(moe_.intermediate)));
        visit(from_gemm("moe.experts_down", layers, 1, moe_down_traffic(moe_, tokens, distinct)));
        visit(element_wise("moe.sum", layers, 1, tokens, moe_sum_bytes(moe_)));
        if (shared > 0) {
            visit(element_wise("moe.shared_gate", layers, 1, tokens, moe_shared_gate_bytes(h()))
                      .own(Owner::kWeights, 2 * h()));
        }
    }

    // Greedy sampling.
    template <class Visit>
    void logits(std::int64_t rows, Visit& visit) const {
        visit(gemm("lm_head", 1, rows, model_.vocab, h()));
        visit(element_wise("logits_to_fp32", 1, 1, rows, logits_to_fp32_bytes(model_.vocab)));
        visit(element_wise("argmax", 1, 1, rows, argmax_bytes(model_.vocab)));
    }

    PricedModel model_;
    LinearShape linear_;
    AttentionShape attention_;
    MoeShape moe_;
};

}  // namespace kvsim
