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

class LinearLayer {
  public:
    LinearLayer(ListBuilder& list, const StepContext& context, const LinearMixer& mixer,
                const StepShape& step)
        : list_(list),
          context_(context),
          mixer_(mixer),
          step_(step),
          shape_(linear_shape(mixer, context.state)),
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
        conv_weights_ = weights_.take_vector("conv") + weights_.take_vector("conv_bias");
        gate_weights_ =
            weights_.take_vector("a_log") + weights_.take_vector("dt_bias") + weights_.take_vector("d");
        decode();
        if (step_.prefill.new_tokens > 0) prefill();
        output();
        weights_.finish();
    }

  private:
    void gdn_inputs() {
        const WeightMatrix& qkvz = weights_.take("in_proj_qkvz");
        const WeightMatrix& ba = weights_.take("in_proj_ba");
        const EngineSteps& engine = context_.engine;
        if (engine.has(Fusion::kMergedProjection)) {
            list_.product("linear.in_proj", tokens_, qkvz.rows + ba.rows, qkvz.cols,
                          weights_.bytes(qkvz) + weights_.bytes(ba), weights_.format(qkvz));
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
        list_.product("linear.in_proj", tokens_, rows, context_.model.hidden, bytes, *format);
        const WeightMatrix& f = weights_.take("f_b_proj");
        const WeightMatrix& g = weights_.take("g_b_proj");
        list_.product("linear.gate_proj", tokens_, f.rows + g.rows, f.cols,
                      weights_.bytes(f) + weights_.bytes(g), weights_.format(f));
    }

    Operator conv_operator(std::string_view name, Pricing pricing, std::int64_t sequences,
                           std::int64_t tokens) const {
        const ConvTraffic t = conv_traffic(shape_, mixer_.conv_kernel, sequences, tokens);
        Operator op = ListBuilder::make(name, std::move(pricing));
        op.flops = t.flops;
        op.own(Owner::kWeights, conv_weights_)
            .own(Owner::kConvRead, t.window_read)
            .own(Owner::kConvWrite, t.window_write)
            .own(Owner::kActivations, t.activations);
        return op;
    }

    void decode() {
        const DecodeRows rows(step_);
        if (rows.sequences == 0) return;
        if (mixer_.conv_kernel > 0) {
            // The law knows one token per sequence, 4 + 4 (kernel - 1) bytes per channel; of several, as many
            // sequences as move the same bytes.
            const std::int64_t one = 4 + 4LL * (mixer_.conv_kernel - 1);
            const std::int64_t all = rows.sequences * (one - 4) + rows.tokens * 4;
            const std::int64_t like = (all + one - 1) / one;
            list_.add(conv_operator(
                "linear.conv", ConvUpdate{{conv_channels(shape_), mixer_.conv_kernel, like, like, kColdL2}},
                rows.sequences, rows.tokens));
        }
        if (mixer_.family == Family::kGdn && rows.tokens > rows.sequences)
            list_.element_wise("linear.verify_split", rows.tokens, 4 * conv_channels(shape_));
        for (std::size_t i = 0; i < step_.linear.size(); ++i) {
            const LinearWork& w = step_.linear[i];
            if (w.sequences == 0) continue;
            const auto form = static_cast<Form>(i);
            const LinearTraffic t = linear_traffic(shape_, form, w);
            Operator op = ListBuilder::make(kDecodeNames[i], LinearDecode{shape_, form, w});
            op.flops = t.flops;
            list_.add(std::move(op))
                .own(Owner::kWeights, gate_weights_)
                .own(Owner::kStateRead, t.state_read)
                .own(Owner::kStateWrite, t.state_write)
                .own(Owner::kBufferRead, t.buffer_read)
                .own(Owner::kBufferWrite, t.buffer_write)
                .own(Owner::kActivations, t.io_read + t.io_write);
        }
    }

    void prefill() {
        const PrefillShape& p = step_.prefill;
        if (mixer_.conv_kernel > 0) {
            list_.add(conv_operator(
                "linear.conv_prefill",
                ConvPrefill{{conv_channels(shape_), mixer_.conv_kernel, p.sequences, p.new_tokens, kColdL2}},
                p.sequences, p.new_tokens));
        }
        if (mixer_.family == Family::kGdn || mixer_.family == Family::kKda) {
            chunk_prefill(p);
        } else {
            ssd_prefill(p);
        }
    }

    void chunk_prefill(const PrefillShape& p) {
        // FlashInfer's kernel on Hopper: l2norm of q and of k, exp(g), gather of states, two index kernels,
        // the kernel, states back.
        constexpr std::int64_t kLaunches = 8;
        list_.element_wise("linear.split_gates_prefill", p.new_tokens, prefill_split_gates_bytes(shape_))
            .own(Owner::kWeights, gate_weights_)
            .launches = 2;
        const ChunkPrefillTraffic t = chunk_prefill_traffic(shape_, p.sequences, p.new_tokens);
        const std::int64_t longest = (p.new_tokens + p.sequences - 1) / p.sequences;
        Operator op = ListBuilder::make(
            "linear.chunk_prefill", LinearPrefillWork{shape_, p.sequences, p.new_tokens, longest}, kLaunches);
        op.flops = t.flops;
        list_.add(std::move(op))
            .own(Owner::kStateRead, t.state_read)
            .own(Owner::kStateWrite, t.state_write)
            .own(Owner::kActivations, t.activations);
    }

    void ssd_prefill(const PrefillShape& p) {
        // State gather, cumulative sums, chunk states, their passing on, C B^T, scan, states of varied
        // lengths, scatter.
        constexpr std::int64_t kLaunches = 8;
        const SsdPrefillTraffic t = ssd_prefill_traffic(shape_, p.sequences, p.new_tokens);
        Operator op = ListBuilder::make("linear.chunk_prefill", Roofline{}, kLaunches);
        op.flops = t.flops;
        list_.add(std::move(op))
            .own(Owner::kWeights, gate_weights_)
            .own(Owner::kStateRead, t.state_read)
            .own(Owner::kStateWrite, t.state_write)
            .own(Owner::kActivations, t.activations);
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
    std::int64_t conv_weights_ = 0;
    std::int64_t gate_weights_ = 0;  // A_log, dt_bias, D, read by whatever computes the gates
};

}  // namespace

void add_linear_mixer(ListBuilder& list, const StepContext& context, const LinearMixer& mixer,
                      const StepShape& step) {
    LinearLayer(list, context, mixer, step).add();
}

}  // namespace kvsim
