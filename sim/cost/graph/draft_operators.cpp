// Speculation with a multi-token prediction module: its forward passes (SGLang `eagle_worker_v2.py` and the
// MTP classes of `qwen3_5_mtp.py`, `nemotron_h_mtp.py`), and what follows the verification.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/traffic_blocks.hpp"
#include "kernels/traffic_elementwise.hpp"
#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_linear_layer.hpp"
#include "sim/cost/graph/list_builder.hpp"

namespace kvsim {

namespace {

std::int64_t decode_tokens(const StepShape& step) {
    return step.tokens() - step.prefill.new_tokens;
}

// Norms of the hidden state and of the next token's embedding, both side by side, and their projection.
OperatorList start_of_draft(const StepContext& c, const StepShape& pass) {
    ListBuilder list;
    const std::int64_t tokens = pass.tokens();
    const std::int64_t h = c.model.hidden;
    add_embedding(list, c, tokens);
    for (const std::string_view name : {"embedding_norm", "hidden_norm"})
        list.element_wise(name, tokens, map_bytes(h)).own(Owner::kWeights, kValueBytes * h);
    list.element_wise("concatenate", tokens, map_bytes(2 * h));
    const WeightFormat& format = c.model.formats[static_cast<std::size_t>(WeightGroup::kOther)];
    list.product("mtp_proj", tokens,
                 {h, 2 * h, matrix_bytes(h, 2 * h, format).value(), matrix_format(format)});
    if (fused_norms(c)) add_norm(list, c, "first_norm", tokens);
    return list.take();
}

OperatorList end_of_draft(const StepContext& c, const StepShape& pass) {
    ListBuilder list;
    if (!fused_norms(c)) add_norm(list, c, "final_norm", pass.tokens());
    if (pass.logit_rows > 0) {
        list.driven_by(Driver::kLogits);
        add_logits(list, c, pass.logit_rows);
        list.element_wise("top_1", pass.logit_rows,
                          argmax_bytes(std::int64_t{c.model.vocab} * c.parallelism.tp));
    }
    return list.take();
}

// Verified tokens against the target's choices; when it samples, against its probabilities, those of the
// drafts having been cleared before.
void append_accept(const StepContext& c, const StepShape& step, OperatorList& list) {
    const std::int64_t verified = decode_tokens(step);
    if (verified <= step.decode.sequences) return;
    const bool greedy = c.engine.sampling == Sampling::kGreedy;
    const std::int64_t vocab = std::int64_t{c.model.vocab} * c.parallelism.tp;
    list.push_back(
        element_wise_operator("accept", verified * (greedy ? accept_bytes() : sampled_accept_bytes(vocab))));
    list.back().launches = greedy ? 1 : 2;
}

// So many requests' states and windows from one place to another, of all layers in one kernel each.
void append_copies(const StepContext& c, const LinearMixer& mixer, std::string_view state_name,
                   std::int64_t states, std::string_view conv_name, std::int64_t windows,
                   OperatorList& list) {
    if (states == 0 && windows == 0) return;
    const LinearShape shape = linear_shape(mixer, c.state);
    const std::int64_t layers = linear_layers(c.model);
    if (states > 0) {
        const std::int64_t bytes = layers * states * state_bytes(shape);
        list.push_back(make_operator(state_name, ElementWise{}));
        list.back().own(Owner::kStateRead, bytes).own(Owner::kStateWrite, bytes);
    }
    if (windows > 0 && mixer.conv_kernel > 0) {
        const std::int64_t bytes = layers * conv_traffic(shape, mixer.conv_kernel, windows, 0).window_read;
        list.push_back(make_operator(conv_name, ElementWise{}));
        list.back().own(Owner::kConvRead, bytes).own(Owner::kConvWrite, bytes);
    }
}

}  // namespace

void append_folds(const StepContext& c, const FoldShape& folds, OperatorList& list) {
    const LinearMixer* mixer = linear_mixer(c.model);
    if (mixer == nullptr || folds.states == 0) return;
    const LinearShape shape = linear_shape(*mixer, c.state, c.records);
    const std::int64_t layers = linear_layers(c.model);
    const LinearTraffic t =
        linear_traffic(shape, Form::kBuffered, {0, 0, folds.records, folds.states, folds.records}, true);
    list.push_back(make_operator("linear.fold_state", ElementWise{}));
    list.back().flops = layers * t.flops;
    list.back()
        .own(Owner::kStateRead, layers * t.state_read)
        .own(Owner::kStateWrite, layers * t.state_write)
        .own(Owner::kBufferRead, layers * t.buffer_read);
}

void append_end(const StepContext& c, const StepShape& step, OperatorList& list) {
    append_accept(c, step, list);
    const LinearMixer* mixer = linear_mixer(c.model);
    if (mixer == nullptr) return;
    if (!c.engine.has(Fusion::kStateIndex)) {
        // States that were accepted, from where verification left them to the pool; windows likewise.
        const std::int64_t stored = step[Form::kVerifyStored].sequences;
        const std::int64_t verified = stored + step[Form::kVerifyBuffered].sequences;
        append_copies(c, *mixer, "linear.commit_state", stored, "linear.commit_conv", verified, list);
    }
    append_copies(c, *mixer, "linear.copy_state", step.state_copies, "linear.copy_conv", step.state_copies,
                  list);
}

DraftPasses draft_passes(const StepContext& c, const StepShape& step) {
    DraftPasses passes;
    if (step.drafts == 0) return passes;
    const std::int64_t rows = step.decode.sequences;
    const std::int64_t drafted = rows + step.fresh.sequences;
    const std::int64_t verified = decode_tokens(step);
    // The module has no linear layers: the form is any.
    passes.first[Form::kRecurrent] = {rows, verified};
    passes.first.decode = step.decode;
    passes.first.prefill = step.prefill;
    passes.first.logit_rows = step.logit_rows;
    if (c.engine.has(Fusion::kDraftRows))
        passes.first.logit_rows -= std::clamp<std::int64_t>(verified - rows, 0, step.logit_rows);
    if (drafted == 0 || step.drafts == 1) return passes;
    passes.later[Form::kRecurrent] = {drafted, drafted};
    const std::int64_t longest = rows > 0 ? step.decode.context_max + verified / rows : 0;
    passes.later.decode = {drafted, step.decode.context_sum + verified + step.fresh.context_sum,
                           std::max(longest, step.fresh.context_max)};
    passes.later.logit_rows = drafted;
    passes.later_count = step.drafts - 1;
    return passes;
}

std::vector<NamedList> draft_operators(const StepContext& c, const StepShape& pass, std::int64_t count) {
    std::vector<NamedList> lists{{"draft start", count, start_of_draft(c, pass), true}};
    for (const LayerKind& kind : c.model.kinds) {
        const auto layers = std::ranges::count(c.model.mtp_pattern, kind.letter);
        if (layers == 0) continue;
        lists.push_back({fmt::format("draft layer {}", kind.letter), count * layers,
                         layer_operators(c, kind, pass), true});
    }
    lists.push_back({"draft end", count, end_of_draft(c, pass), true});
    return lists;
}

}  // namespace kvsim
