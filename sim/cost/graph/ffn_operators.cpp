// FFNs: dense, and mixtures of experts (SGLang `qwen2_moe.py`, `nemotron_h.py`, `kimi_linear.py`).
#include <algorithm>

#include "kernels/traffic_blocks.hpp"
#include "kernels/traffic_elementwise.hpp"
#include "kernels/traffic_exchange.hpp"
#include "kernels/traffic_moe.hpp"
#include "sim/cost/graph/list_builder.hpp"
#include "sim/cost/tables/moe_law.hpp"

namespace kvsim {

namespace {

std::int64_t activation_bytes(Activation a, std::int64_t width) {
    return a == Activation::kSwiglu ? silu_mul_bytes(width) : relu2_bytes(width);
}

void add(ListBuilder& list, const StepContext& context, const DenseFfn& ffn, const StepShape&,
         std::int64_t tokens) {
    PartWeights w(weights(Ffn(ffn), context.model.hidden), context.model);
    list.gemm("ffn.up", tokens, w.take("up"), w);
    list.element_wise("ffn.activation", tokens, activation_bytes(ffn.activation, ffn.width));
    list.gemm("ffn.down", tokens, w.take("down"), w);
    w.finish();
}

std::int64_t own_tokens(const Parallelism& p, std::int64_t tokens) {
    return p.all_to_all() ? (tokens + p.tp - 1) / p.tp : tokens;
}

class MoeLayer {
  public:
    MoeLayer(ListBuilder& list, const StepContext& context, const MoeFfn& ffn, const StepShape& step,
             std::int64_t tokens)
        : list_(list),
          context_(context),
          ffn_(ffn),
          weights_(weights(Ffn(ffn), context.model.hidden), context.model),
          all_tokens_(tokens),
          tokens_(own_tokens(context.parallelism, tokens)),
          prefills_(step.prefill.new_tokens > 0),
          width_(ffn.latent > 0 ? ffn.latent : context.model.hidden) {}

    void add() {
        const EngineSteps& engine = context_.engine;
        const bool shared = ffn_.shared_width > 0;
        const bool beside =
            shared && engine.has(Overlap::kSharedExperts) && !prefills_ && tokens_ <= engine.overlap_tokens;
        if (beside) {
            list_.fork();
            routed_experts();
            list_.back();
            shared_experts();
            list_.join();
        } else {
            if (shared) shared_experts();
            routed_experts();
        }
        if (ffn_.latent > 0) list_.gemm("moe.latent_up", tokens_, weights_.take("latent_up"), weights_);
        if (shared) combine();
        weights_.finish();
    }

  private:
    // SwiGLU experts run in Triton, on a copy of the input; relu2 ones (Nemotron) in FlashInfer's CUTLASS
    // kernels.
    bool triton() const { return ffn_.activation == Activation::kSwiglu; }

    void shared_experts() {
        if (triton()) list_.element_wise("moe.clone", tokens_, moe_clone_bytes(context_.model.hidden));
        list_.gemm("moe.shared_up", tokens_, weights_.take("shared_up"), weights_);
        list_.element_wise("moe.shared_activation", tokens_,
                           activation_bytes(ffn_.activation, ffn_.shared_width));
        list_.gemm("moe.shared_down", tokens_, weights_.take("shared_down"), weights_);
    }

    void routed_experts() {
        const MoeShape shape{static_cast<int>(width_), ffn_.experts, ffn_.top_k, ffn_.expert_width};
        list_.gemm("moe.router", tokens_, weights_.take("router"), weights_);
        // Softmax routing (no bias) needs its outputs cleared by a kernel before.
        list_.element_wise("moe.top_k", tokens_, moe_top_k_bytes(shape))
            .own(Owner::kWeights, weights_.take_vector("router_bias"))
            .launches = ffn_.router_bias ? 1 : 2;
        if (ffn_.latent > 0) list_.gemm("moe.latent_down", tokens_, weights_.take("latent_down"), weights_);
        const bool sent = context_.parallelism.all_to_all();
        if (sent) exchange("moe.dispatch", dispatched_row());
        experts(shape);
        if (sent) exchange("moe.combine", 2 * width_);
        if (!triton()) list_.element_wise("moe.routed_scale", tokens_, map_bytes(width_));
    }

    // DeepEP quantises what goes to fp8 experts with a scale per 128 values; outputs come back in bf16.
    std::int64_t dispatched_row() const {
        const WeightType type = context_.model.formats[static_cast<std::size_t>(WeightGroup::kExperts)].type;
        return type == WeightType::kFp8 ? width_ + 4 * ((width_ + 127) / 128) : 2 * width_;
    }

    void exchange(std::string_view name, std::int64_t row_bytes) {
        const int ranks = ffn_.expert_ranks;
        const ExchangeTraffic t = exchange_traffic({row_bytes, ffn_.experts, ffn_.top_k, ranks}, tokens_);
        list_.add(make_operator(name, AllToAll{Bytes(t.sent), ranks})).own(Owner::kActivations, t.dram);
    }

    // Sort, two grouped products with the activation between, sum: one operator, as tables time it.
    void experts(const MoeShape& shape) {
        const WeightMatrix& up = weights_.take("experts_up");
        const WeightMatrix& down = weights_.take("experts_down");
        ExpertsWork work;
        work.shape = shape;
        work.gated = ffn_.activation == Activation::kSwiglu;
        work.format = matrix_format(weights_.format(up));
        work.expert_bytes = weights_.bytes(up) + weights_.bytes(down);
        work.held_share = static_cast<double>(ffn_.experts_held()) / ffn_.experts;
        work.power_law = ffn_.power_law;
        work.expert_ranks = ffn_.expert_ranks;
        Operator op = make_operator("moe.experts", work, expert_launches());
        set_tokens(op, std::get<ExpertsWork>(op.pricing), all_tokens_);
        list_.add(std::move(op));
    }

    std::int64_t expert_launches() const {
        if (triton()) return 2 + 3 + 1;  // count and sort; products and activation; sum
        // FlashInfer: rows expanded, strides, product, activation, product, sum; and a sort that is one
        // kernel for few rows.
        constexpr std::array kFewExperts{1, 2, 4, 6, 8};
        const bool one_sort =
            all_tokens_ <= 256 && ffn_.experts < 511 &&
            std::find(kFewExperts.begin(), kFewExperts.end(), ffn_.top_k) != kFewExperts.end();
        return 6 + (one_sort ? 1 : 3);
    }

    void combine() {
        const std::int64_t hidden = context_.model.hidden;
        if (!ffn_.shared_gate) {
            list_.element_wise("moe.add_shared", tokens_, add_bytes(hidden));
            return;
        }
        Operator& op = list_.element_wise("moe.shared_gate", tokens_, moe_shared_gate_bytes(hidden));
        op.own(Owner::kWeights, weights_.take_vector("shared_gate"));
        if (!context_.engine.has(Fusion::kSharedGate)) op.launches = 4;  // product, sigmoid, scale, sum
    }

    ListBuilder& list_;
    const StepContext& context_;
    const MoeFfn& ffn_;
    PartWeights weights_;
    std::int64_t all_tokens_;  // of all ranks
    std::int64_t tokens_;      // that this rank routes: all, or its own where they are sent to their experts
    bool prefills_;
    std::int64_t width_;  // of the routed experts' inputs
};

void add(ListBuilder& list, const StepContext& context, const MoeFfn& ffn, const StepShape& step,
         std::int64_t tokens) {
    MoeLayer(list, context, ffn, step, tokens).add();
}

}  // namespace

void set_tokens(Operator& op, ExpertsWork& work, std::int64_t tokens) {
    work.tokens = tokens;
    const double distinct = work.power_law ? expected_distinct_experts(work.shape, tokens, *work.power_law)
                                           : expected_distinct_experts(work.shape, tokens);
    work.distinct_experts = distinct * work.held_share;
    work.rows = static_cast<double>(tokens) * work.shape.top_k / work.expert_ranks;
    // With expert parallelism a rank gets its share of the rows.
    const std::int64_t own = (tokens + work.expert_ranks - 1) / work.expert_ranks;
    const std::int64_t rows = own * work.shape.top_k;
    const GemmTraffic down = moe_down_traffic(work.shape, own, work.distinct_experts);
    // Without a gate the first product is the second one turned round, and a kernel expands rows before it.
    const GemmTraffic up = work.gated ? moe_gate_up_traffic(work.shape, own, work.distinct_experts) : down;
    const std::int64_t expanded = work.gated ? 0 : 2 * (own + rows) * work.shape.hidden;
    const std::int64_t width = work.shape.intermediate;
    op.flops = up.flops + down.flops;
    op.bytes = {};
    op.own(Owner::kWeights, std::llround(work.distinct_experts * static_cast<double>(work.expert_bytes)))
        .own(Owner::kActivations, up.activations + down.activations + expanded +
                                      rows * (work.gated ? silu_mul_bytes(width) : relu2_bytes(width)) +
                                      own * (moe_align_bytes(work.shape) + moe_sum_bytes(work.shape)));
}

void add_ffn(ListBuilder& list, const StepContext& context, const Ffn& ffn, const StepShape& step,
             std::int64_t tokens) {
    std::visit([&](const auto& f) { add(list, context, f, step, tokens); }, ffn);
}

}  // namespace kvsim
