#include "sim/cost/graph/operators.hpp"

#include <fmt/format.h>

#include "kernels/traffic_blocks.hpp"
#include "kernels/traffic_elementwise.hpp"
#include "kernels/traffic_gemm.hpp"
#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_linear_layer.hpp"
#include "sim/cost/graph/list_builder.hpp"

namespace kvsim {

namespace {

// Ranks that share the mixers of a layer.
int mixer_ranks(const StepContext& c) {
    return c.parallelism.tp / c.parallelism.attention_dp;
}

void add_sum(ListBuilder& list, const StepContext& c, std::string_view name, std::int64_t tokens, int ranks) {
    if (ranks == 1) return;
    const std::int64_t message = kValueBytes * tokens * c.model.hidden;
    Operator& op = list.add(make_operator(name, AllReduce{Bytes(message), ranks}));
    op.own(Owner::kActivations, 2 * message);
    if (!fused_norms(c)) return;
    op.own(Owner::kActivations, tokens * add_norm_bytes(c.model.hidden))
        .own(Owner::kWeights, kValueBytes * c.model.hidden);
}

void add_mixers(ListBuilder& list, const StepContext& c, const LayerKind& kind, const StepShape& step) {
    const bool both = kind.linear && kind.attention;
    const bool beside = both && c.engine.has(Overlap::kMixers) && step.tokens() <= c.engine.overlap_tokens;
    if (beside) list.fork();
    if (kind.attention) add_attention(list, c, *kind.attention, step);
    if (beside) list.back();
    if (kind.linear) add_linear_mixer(list, c, *kind.linear, step);
    if (beside) list.join();
    if (both) list.element_wise("mixer.add", step.tokens(), add_bytes(c.model.hidden));
}

// Whether the layer's tokens are sent to the ranks of their experts.
bool sends_tokens(const StepContext& c, const LayerKind& kind) {
    return c.parallelism.all_to_all() && kind.ffn && std::holds_alternative<MoeFfn>(*kind.ffn);
}

// Each rank keeps its share of the tokens of its mixers' group, whose sums are scattered before and gathered
// after: halves of an all-reduce.
void add_sent_ffn(ListBuilder& list, const StepContext& c, const LayerKind& kind, const StepShape& step) {
    const int ranks = mixer_ranks(c);
    const std::int64_t half = kValueBytes * step.tokens() * c.model.hidden / 2;
    const auto add_half = [&](std::string_view name) {
        if (ranks == 1) return;
        list.add(make_operator(name, AllReduce{Bytes(half), ranks})).own(Owner::kActivations, 2 * half);
    };
    const bool mixed = kind.linear || kind.attention;  // else the tokens of the layer before are whole
    if (mixed) add_half("mixer.scatter");
    add_norm(list, c, "ffn.norm", (step.tokens() + ranks - 1) / ranks);
    add_ffn(list, c, *kind.ffn, step, step.tokens() * c.parallelism.attention_dp);
    add_half("ffn.gather");
}

void add_sampling(ListBuilder& list, const StepContext& c, std::int64_t rows) {
    const std::int64_t vocab = std::int64_t{c.model.vocab} * c.parallelism.tp;
    if (c.engine.sampling == Sampling::kGreedy) {
        list.element_wise("argmax", rows, argmax_bytes(vocab));
    } else {
        list.element_wise("softmax", rows, softmax_chain_bytes(vocab)).launches = 3;
        list.element_wise("sample", rows, sample_pass_bytes(vocab));
    }
}

}  // namespace

bool fused_norms(const StepContext& c) {
    return c.parallelism.tp > 1 && c.parallelism.attention_dp == 1 && !c.parallelism.all_to_all() &&
           c.engine.has(Fusion::kAllReduceNorm);
}

void add_norm(ListBuilder& list, const StepContext& c, std::string_view name, std::int64_t tokens) {
    list.element_wise(name, tokens, add_norm_bytes(c.model.hidden))
        .own(Owner::kWeights, kValueBytes * c.model.hidden);
}

void add_embedding(ListBuilder& list, const StepContext& c, std::int64_t tokens) {
    const std::int64_t row = kValueBytes * c.model.hidden;
    const WeightFormat& format = c.model.formats[static_cast<std::size_t>(WeightGroup::kEmbedding)];
    list.element_wise("embedding", tokens, row)
        .own(Owner::kWeights, tokens * matrix_bytes(1, c.model.hidden, format).value());
    if (c.parallelism.tp > 1) {
        const std::int64_t message = row * tokens;
        list.add(make_operator("embedding.all_reduce", AllReduce{Bytes(message), c.parallelism.tp}))
            .own(Owner::kActivations, 2 * message);
    }
}

void add_logits(ListBuilder& list, const StepContext& c, std::int64_t rows) {
    const std::int64_t h = c.model.hidden;
    const WeightGroup group = c.model.tied_embeddings ? WeightGroup::kEmbedding : WeightGroup::kHead;
    const WeightFormat& format = c.model.formats[static_cast<std::size_t>(group)];
    const std::int64_t vocab = std::int64_t{c.model.vocab} * c.parallelism.tp;
    list.product("lm_head", rows,
                 {c.model.vocab, h, matrix_bytes(c.model.vocab, h, format).value(), matrix_format(format)});
    if (c.parallelism.tp > 1) {
        // An all-gather moves what the second half of an all-reduce does.
        const std::int64_t message = kValueBytes * rows * vocab;
        list.add(make_operator("logits.gather", AllReduce{Bytes((message + 1) / 2), c.parallelism.tp}))
            .own(Owner::kActivations, message);
    }
    list.element_wise("logits_to_fp32", rows, logits_to_fp32_bytes(vocab));
}

Operator product_operator(std::string_view name, std::int64_t m, const Product& p) {
    const GemmTraffic t = gemm_traffic(m, p.n, p.k);
    Operator op = make_operator(name, GemmWork{m, p.n, p.k, p.format});
    if (p.format != MatrixFormat::kBf16) op.launches = 2;  // the input is quantised by a kernel of its own
    op.flops = t.flops;
    const std::int64_t inputs = kValueBytes * m * (p.batches - 1) * p.k;  // beside the first
    return op.own(Owner::kWeights, p.weight_bytes).own(Owner::kActivations, t.activations + inputs);
}

StepContext::StepContext(const ModelSpec& whole, const Parallelism& p, const EngineSteps& steps,
                         StateFormat s, RecordFormat r)
    : model(rank_model(whole, p)), parallelism(p), engine(steps.serving(whole.name)), state(s), records(r) {}

OperatorList start_operators(const StepContext& c, const StepShape& step) {
    ListBuilder list;
    add_embedding(list, c, step.tokens());
    if (fused_norms(c)) add_norm(list, c, "first_norm", step.tokens());
    return list.take();
}

OperatorList layer_operators(const StepContext& c, const LayerKind& kind, const StepShape& step) {
    ListBuilder list;
    const std::int64_t tokens = step.tokens();
    if (kind.linear || kind.attention) {
        const std::string_view name = !kind.attention ? "linear.norm"
                                      : kind.linear   ? "mixer.norm"
                                                      : "attention.norm";
        if (!fused_norms(c)) add_norm(list, c, name, tokens);
        add_mixers(list, c, kind, step);
        if (!sends_tokens(c, kind)) add_sum(list, c, "mixer.all_reduce", tokens, mixer_ranks(c));
    }
    if (kind.ffn && sends_tokens(c, kind)) {
        add_sent_ffn(list, c, kind, step);
    } else if (kind.ffn) {
        if (!fused_norms(c)) add_norm(list, c, "ffn.norm", tokens);
        const int dp = c.parallelism.attention_dp;
        const std::int64_t gathered = tokens * dp;
        // Groups with their own sequences gather their tokens and scatter the sums: halves of an all-reduce.
        const std::int64_t half = kValueBytes * gathered * c.model.hidden / 2;
        if (dp > 1) {
            list.add(make_operator("ffn.gather", AllReduce{Bytes(half), c.parallelism.tp}))
                .own(Owner::kActivations, 2 * half);
        }
        add_ffn(list, c, *kind.ffn, step, gathered);
        if (dp > 1) {
            list.add(make_operator("ffn.scatter", AllReduce{Bytes(half), c.parallelism.tp}))
                .own(Owner::kActivations, 2 * half);
        } else {
            add_sum(list, c, "ffn.all_reduce", tokens, c.parallelism.tp);
        }
    }
    return list.take();
}

OperatorList end_operators(const StepContext& c, const StepShape& step) {
    ListBuilder list;
    if (!fused_norms(c)) add_norm(list, c, "final_norm", step.tokens());
    if (step.logit_rows > 0) {
        list.driven_by(Driver::kLogits);
        add_logits(list, c, step.logit_rows);
        add_sampling(list, c, step.logit_rows);
    }
    OperatorList rest;
    append_folds(c, step.folds, rest);
    append_end(c, step, rest);
    list.add_all(std::move(rest), Driver::kEnd);
    return list.take();
}

std::vector<NamedList> forward_operators(const StepContext& c, const StepShape& step) {
    std::vector<NamedList> lists{{"start", 1, start_operators(c, step)}};
    for (const LayerKind& kind : c.model.kinds) {
        const std::int64_t count = c.model.count(kind);
        if (count == 0) continue;  // of the MTP module alone
        lists.push_back({fmt::format("layer {}", kind.letter), count, layer_operators(c, kind, step)});
    }
    lists.push_back({"end", 1, end_operators(c, step)});
    return lists;
}

}  // namespace kvsim
