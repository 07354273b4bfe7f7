// Linear-attention layers: GDN (SGLang `gdn_backend.py`), KDA (`kda_backend.py`), Mamba-2 (`mamba/mamba.py`),
// lightning (vLLM `minimax_text_01.py`).
#include <algorithm>

#include "kernels/traffic_blocks.hpp"
#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_linear_layer.hpp"
#include "sim/cost/graph/list_builder.hpp"

namespace kvsim {

namespace {

constexpr std::array<std::string_view, kFormCount> kDecodeNames{
    "linear.recurrent", "linear.buffered", "linear.direct", "linear.verify_stored", "linear.verify_buffered"};

struct DecodeRows {
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;

    explicit DecodeRows(const StepShape& step) {
        for (const LinearWork& w : step.linear) {
            sequences += w.sequences;
            tokens += w.new_tokens;
        }
    }
};

Operator conv_operator(const LinearPart& part, std::string_view name, Pricing pricing, const ConvTraffic& t) {
    Operator op = make_operator(name, std::move(pricing));
    op.flops = t.flops;
    op.own(Owner::kWeights, part.conv_weights)
        .own(Owner::kConvRead, t.window_read)
        .own(Owner::kConvWrite, t.window_write)
        .own(Owner::kActivations, t.activations);
    return op;
}

void append_conv_update(const LinearPart& part, const DecodeRows& rows, OperatorList& list) {
    const LinearShape& shape = part.shape;
    ConvTraffic t = conv_traffic(shape, part.conv_kernel, rows.sequences, rows.tokens);
    if (part.keeps_windows && rows.tokens > rows.sequences)
        t.window_write = t.window_read / rows.sequences * rows.tokens;
    // The law knows one token per sequence, so many bytes per channel; of several, as many sequences as move
    // the same bytes.
    const std::int64_t one = conv_traffic(shape, part.conv_kernel, 1, 1).total() -
                             conv_traffic(shape, part.conv_kernel, 0, 0).total();
    const std::int64_t all = t.window_read + t.window_write + t.activations;
    const std::int64_t like = (all + one - 1) / one;
    list.push_back(conv_operator(
        part, "linear.conv", ConvUpdate{{conv_channels(shape), part.conv_kernel, like, like, kColdL2}}, t));
}

void append_decode(const LinearPart& part, const StepShape& step, OperatorList& list) {
    const DecodeRows rows(step);
    if (rows.sequences == 0) return;
    if (part.conv_kernel > 0) append_conv_update(part, rows, list);
    if (part.shape.family == Family::kGdn && rows.tokens > rows.sequences)
        list.push_back(
            element_wise_operator("linear.verify_split", rows.tokens * 4 * conv_channels(part.shape)));
    for (std::size_t i = 0; i < step.linear.size(); ++i) {
        if (step.linear[i].sequences > 0)
            list.push_back(decode_operator(part, static_cast<Form>(i), step.linear[i]));
    }
}

void append_chunk_prefill(const LinearPart& part, const PrefillShape& p, OperatorList& list) {
    // FlashInfer's kernel on Hopper: l2norm of q and of k, exp(g), gather of states, two index kernels, the
    // kernel, states back.
    constexpr std::int64_t kLaunches = 8;
    list.push_back(element_wise_operator("linear.split_gates_prefill",
                                         p.new_tokens * prefill_split_gates_bytes(part.shape)));
    list.back().own(Owner::kWeights, part.gate_weights).launches = 2;
    const ChunkPrefillTraffic t = chunk_prefill_traffic(part.shape, p.sequences, p.new_tokens);
    const std::int64_t longest = (p.new_tokens + p.sequences - 1) / p.sequences;
    list.push_back(make_operator("linear.chunk_prefill",
                                 LinearPrefillWork{part.shape, p.sequences, p.new_tokens, longest},
                                 kLaunches));
    list.back().flops = t.flops;
    list.back()
        .own(Owner::kStateRead, t.state_read)
        .own(Owner::kStateWrite, t.state_write)
        .own(Owner::kActivations, t.activations);
}

void append_ssd_prefill(const LinearPart& part, const PrefillShape& p, OperatorList& list) {
    // State gather, cumulative sums, chunk states, their passing on, C B^T, scan, states of varied lengths,
    // scatter.
    constexpr std::int64_t kLaunches = 8;
    const SsdPrefillTraffic t = ssd_prefill_traffic(part.shape, p.sequences, p.new_tokens);
    list.push_back(make_operator("linear.chunk_prefill", Roofline{}, kLaunches));
    list.back().flops = t.flops;
    list.back()
        .own(Owner::kWeights, part.gate_weights)
        .own(Owner::kStateRead, t.state_read)
        .own(Owner::kStateWrite, t.state_write)
        .own(Owner::kActivations, t.activations);
}

class LinearLayer {
  public:
    LinearLayer(ListBuilder& list, const StepContext& context, const LinearMixer& mixer,
                const StepShape& step)
        : list_(list),
          context_(context),
          mixer_(mixer),
          step_(step),
          shape_(linear_shape(mixer, context.state, context.records)),
          weights_(weights(mixer, context.model.hidden), context.model),
          tokens_(step.tokens()) {}

    void add() {
        switch (mixer_.family) {
            case Family::kGdn:
                gdn_inputs();
                break;
            case Family::kKda:
                kda_inputs();
                break;
            case Family::kMamba2:
                list_.gemm("linear.in_proj", tokens_, weights_.take("in_proj"), weights_);
                break;
            case Family::kLightning:
                list_.gemm("linear.qkv_proj", tokens_, weights_.take("qkv_proj"), weights_);
                list_.element_wise("linear.silu", tokens_, map_bytes(conv_channels(shape_)));
                break;
        }
        OperatorList kernels;
        append_linear(linear_part(context_, mixer_, weights_), step_, kernels);
        list_.add_all(std::move(kernels), Driver::kLinear);
        output();
        weights_.finish();
    }

  private:
    void gdn_inputs() {
        const WeightMatrix& qkvz = weights_.take("in_proj_qkvz");
        const WeightMatrix& ba = weights_.take("in_proj_ba");
        const EngineSteps& engine = context_.engine;
        if (engine.has(Fusion::kMergedProjection)) {
            list_.product("linear.in_proj", tokens_,
                          {qkvz.rows + ba.rows, qkvz.cols, weights_.bytes(qkvz) + weights_.bytes(ba),
                           matrix_format(weights_.format(qkvz))});
        } else {
            // Two streams in a captured graph alone, which prefill is not.
            const bool beside = engine.has(Overlap::kGateProjection) && step_.prefill.new_tokens == 0 &&
                                tokens_ <= engine.overlap_tokens;
            if (beside) {
                list_.fork();
                list_.gemm("linear.in_proj_ba", tokens_, ba, weights_);
                list_.back();
            }
            list_.gemm("linear.in_proj_qkvz", tokens_, qkvz, weights_);
            if (beside) {
                list_.join();
            } else {
                list_.gemm("linear.in_proj_ba", tokens_, ba, weights_);
            }
        }
        const bool in_conv = engine.has(Fusion::kSplitConv) && step_.prefill.new_tokens == 0;
        if (!engine.has(Fusion::kProjectionViews) && !in_conv)
            list_.element_wise("linear.split", tokens_, split_projection_bytes(shape_));
    }

    // q, k, v, b and the first halves of both low-rank gates in one product, then their second halves in
    // another.
    void kda_inputs() {
        std::int64_t rows = 0, bytes = 0;
        const WeightFormat* format = nullptr;
        for (const std::string_view name : {"qkv_proj", "b_proj", "f_a_proj", "g_a_proj"}) {
            const WeightMatrix& w = weights_.take(name);
            rows += w.rows;
            bytes += weights_.bytes(w);
            if (format == nullptr) format = &weights_.format(w);
        }
        list_.product("linear.in_proj", tokens_,
                      {rows, context_.model.hidden, bytes, matrix_format(*format)});
        const WeightMatrix& f = weights_.take("f_b_proj");
        const WeightMatrix& g = weights_.take("g_b_proj");
        list_.product("linear.gate_proj", tokens_,
                      {f.rows + g.rows, f.cols, weights_.bytes(f) + weights_.bytes(g),
                       matrix_format(weights_.format(f)), 2});
    }

    void output() {
        if (mixer_.family == Family::kLightning)
            list_.gemm("linear.output_gate", tokens_, weights_.take("output_gate"), weights_);
        const std::int64_t norm_bytes =
            mixer_.family == Family::kGdn ? gated_norm_bytes(shape_) : gate_output_bytes(shape_);
        list_.element_wise("linear.gated_norm", tokens_, norm_bytes)
            .own(Owner::kWeights, weights_.take_vector("gated_norm"));
        const std::string_view name = mixer_.family == Family::kKda ? "o_proj" : "out_proj";
        list_.gemm("linear.out_proj", tokens_, weights_.take(name), weights_);
    }

    ListBuilder& list_;
    const StepContext& context_;
    const LinearMixer& mixer_;
    const StepShape& step_;
    LinearShape shape_;
    PartWeights weights_;
    std::int64_t tokens_;
};

}  // namespace

LinearPart linear_part(const StepContext& context, const LinearMixer& mixer, PartWeights& weights) {
    LinearPart part;
    part.shape = linear_shape(mixer, context.state, context.records);
    part.conv_kernel = mixer.conv_kernel;
    part.keeps_windows = !context.engine.has(Fusion::kStateIndex);
    part.conv_weights = weights.take_vector("conv") + weights.take_vector("conv_bias");
    part.gate_weights =
        weights.take_vector("a_log") + weights.take_vector("dt_bias") + weights.take_vector("d");
    return part;
}

Operator decode_operator(const LinearPart& part, Form form, const LinearWork& work) {
    Operator op =
        make_operator(kDecodeNames[static_cast<std::size_t>(form)], LinearDecode{part.shape, form, work});
    const LinearTraffic t = linear_traffic(part.shape, form, work);
    op.flops = t.flops;
    op.own(Owner::kWeights, part.gate_weights)
        .own(Owner::kStateRead, t.state_read)
        .own(Owner::kStateWrite, t.state_write)
        .own(Owner::kBufferRead, t.buffer_read)
        .own(Owner::kBufferWrite, t.buffer_write)
        .own(Owner::kActivations, t.io_read + t.io_write);
    return op;
}

void append_linear(const LinearPart& part, const StepShape& step, OperatorList& list) {
    append_decode(part, step, list);
    const PrefillShape& p = step.prefill;
    if (p.new_tokens == 0) return;
    if (part.conv_kernel > 0) {
        list.push_back(conv_operator(
            part, "linear.conv_prefill",
            ConvPrefill{{conv_channels(part.shape), part.conv_kernel, p.sequences, p.new_tokens, kColdL2}},
            conv_traffic(part.shape, part.conv_kernel, p.sequences, p.new_tokens)));
    }
    if (part.shape.family == Family::kGdn || part.shape.family == Family::kKda) {
        append_chunk_prefill(part, p, list);
    } else {
        append_ssd_prefill(part, p, list);
    }
}

void add_linear_mixer(ListBuilder& list, const StepContext& context, const LinearMixer& mixer,
                      const StepShape& step) {
    LinearLayer(list, context, mixer, step).add();
}

}  // namespace kvsim
