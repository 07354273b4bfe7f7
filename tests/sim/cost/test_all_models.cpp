// Every model of configs/models through the cost model: launches, bytes, and the compiled form of the cost.
#include <random>

#include "sim/model/parameters.hpp"
#include "sim/model/request_bytes.hpp"
#include "tests/sim/cost/activation_bytes.hpp"
#include "tests/sim/cost/configs.hpp"
#include "tests/sim/cost/step_cost_support.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

StepShape random_decode(std::mt19937& random) {
    const auto draw = [&](std::uint32_t limit) { return static_cast<std::int64_t>(random() % limit); };
    StepShape s;
    const std::int64_t rows = 1 + draw(300);
    const bool verify = draw(3) == 0;
    const std::int64_t tokens = verify ? 1 + draw(6) : 1;
    const std::int64_t flushes = draw(static_cast<std::uint32_t>(rows));
    if (verify) {
        s[draw(2) == 0 ? Form::kVerifyStored : Form::kVerifyBuffered] = {rows, rows * tokens, 0, 0, 0};
    } else {
        const std::int64_t recurrent = draw(static_cast<std::uint32_t>(rows));
        s[Form::kRecurrent] = {recurrent, recurrent, 0, 0, 0};
        const std::int64_t buffered = rows - recurrent;
        const std::int64_t flushed = std::min(flushes, buffered);
        s[Form::kBuffered] = {buffered, buffered, buffered * draw(15), flushed, flushed * (1 + draw(15))};
    }
    const std::int64_t context = draw(20'000);
    s.decode = {rows, rows * context + draw(static_cast<std::uint32_t>(rows)), context + 1 + draw(5'000)};
    s.logit_rows = rows * tokens;
    return s;
}

}  // namespace

TEST_CASE("launches of a decode step as counted in SGLang's source", "[all_models]") {
    // Nodes inside the graph; the argmax after it is one more.
    const std::pair<const char*, std::int64_t> published[] = {{"qwen3.5-0.8b", 286},
                                                              {"qwen3.5-2b", 286},
                                                              {"qwen3.5-4b", 380},
                                                              {"qwen3.5-9b", 380},
                                                              {"qwen3.5-27b", 756},
                                                              {"qwen3.5-35b-a3b", 914},
                                                              {"qwen3.5-122b-a10b", 1096},
                                                              {"qwen3.5-397b-a17b", 1369},
                                                              {"qwen3-next-80b-a3b", 1156},
                                                              {"nemotron-h-8b", 264},
                                                              {"nemotron-3-nano-30b-a3b", 517},
                                                              {"nemotron-3-super-120b-a12b", 1044},
                                                              {"nemotron-3-ultra-550b-a55b", 1264},
                                                              {"kimi-linear-48b-a3b", 575}};
    const EngineSteps sglang = committed_engine("sglang");
    for (const auto& [name, nodes] : published) {
        INFO(name);
        const ModelSpec model = committed(name);
        CHECK(launches(step_cost(model, sglang).explain(decode(Form::kRecurrent, 8, 100))) == nodes + 1);
    }
}

TEST_CASE("tensor parallelism adds the all-reduce of the embedding and the gather of logits",
          "[all_models]") {
    // All others are one kernel with the norm that follows them.
    const EngineSteps sglang = committed_engine("sglang");
    for (const char* name : {"qwen3.5-27b", "qwen3.5-35b-a3b", "nemotron-h-8b"}) {
        INFO(name);
        const ModelSpec model = committed(name);
        const StepShape shape = decode(Form::kRecurrent, 8, 100);
        const std::vector<OperatorCost> ranks = step_cost(model, sglang, {2, 1, 1}).explain(shape);
        CHECK(launches(ranks) == launches(step_cost(model, sglang).explain(shape)) + 2);
        std::int64_t reduced = 0;
        for (const OperatorCost& op : ranks) {
            if (op.name.ends_with("all_reduce")) reduced += op.count;
        }
        std::int64_t sublayers = 0;  // Qwen: 2 per layer, Nemotron: 1 per block
        for (const LayerKind& kind : model.kinds) sublayers += kind.sublayers() * model.count(kind);
        CHECK(reduced == sublayers + 1);
    }
}

TEST_CASE("bytes by owner of every model, against sums made from the model alone", "[all_models]") {
    std::mt19937 random(11);
    for (const ModelSpec& model : all_committed()) {
        INFO(model.name);
        const LinearMixer& mixer = *linear_mixer(model);
        const StepCost cost = step_cost(model, plain_engine());
        for (int trial = 0; trial < 20; ++trial) {
            const StepShape s = random_decode(random);
            const StepPrice price = cost.price(s);
            const std::int64_t tokens = s.tokens();
            const std::int64_t rows = s.decode.sequences;

            // Weights: the body and the head once, a row of the embedding per token. Of experts those that
            // are touched.
            const ModelWeights w = model_weights(model);
            std::int64_t weights = w.body.bytes.value() + tokens * 2 * model.hidden +
                                   (model.tied_embeddings ? w.embedding : w.head).bytes.value();
            for (const LayerKind& kind : model.kinds) {
                const auto* moe = kind.ffn ? std::get_if<MoeFfn>(&*kind.ffn) : nullptr;
                if (moe == nullptr) continue;
                const std::int64_t in = moe->latent > 0 ? moe->latent : model.hidden;
                const std::int64_t matrices = moe->activation == Activation::kSwiglu ? 3 : 2;
                const double share = static_cast<double>(moe->top_k) / moe->experts;
                const double untouched = moe->experts * std::pow(1.0 - share, static_cast<double>(tokens));
                weights -= model.count(kind) *
                           (2 * matrices * in * moe->expert_width * moe->experts -
                            std::llround((moe->experts - untouched) *
                                         static_cast<double>(2 * matrices * in * moe->expert_width)));
            }
            // A second form in the same step reads decays and biases again.
            std::int64_t forms = 0, tokens_verified = 0;
            for (const LinearWork& work : s.linear) forms += work.sequences > 0 ? 1 : 0;
            for (const LinearWork& work : s.linear) tokens_verified += work.new_tokens;
            std::int64_t gates = 2LL * mixer.v_heads;
            if (mixer.family == Family::kKda)
                gates = mixer.v_heads + std::int64_t{mixer.v_heads} * mixer.k_dim;
            if (mixer.family == Family::kMamba2) gates = 3LL * mixer.v_heads;
            if (mixer.family == Family::kLightning) gates = 0;
            weights += (forms - 1) * linear_layers(model) * 2 * gates;
            CHECK(owned(price.bytes, Owner::kWeights) == weights);
            CHECK(tokens_verified == tokens);

            // KV: what is cached and what is new is read, what is new is written.
            const std::int64_t kv = kv_bytes_per_token(model).value();
            CHECK(owned(price.bytes, Owner::kKvRead) == kv * (s.decode.context_sum + tokens));
            CHECK(owned(price.bytes, Owner::kKvWrite) == kv * tokens);

            // State and records, with the copy of the accepted state after verification.
            const std::int64_t state = state_bytes_per_request(model, StateFormat::kFp32).value();
            const std::int64_t record = ring_bytes_per_request(model, 1).value();
            const std::int64_t copied = s[Form::kVerifyStored].sequences;
            const std::int64_t verified = copied + s[Form::kVerifyBuffered].sequences;
            CHECK(owned(price.bytes, Owner::kStateRead) == state * (rows + copied));
            CHECK(owned(price.bytes, Owner::kStateWrite) ==
                  state * (s[Form::kRecurrent].sequences + s[Form::kBuffered].flushes +
                           s[Form::kVerifyStored].new_tokens + copied));
            CHECK(owned(price.bytes, Owner::kBufferRead) == record * s[Form::kBuffered].buffered_tokens);
            CHECK(owned(price.bytes, Owner::kBufferWrite) ==
                  record * (s[Form::kBuffered].new_tokens + s[Form::kVerifyBuffered].new_tokens));
            const std::int64_t conv = conv_bytes_per_request(model).value();
            CHECK(owned(price.bytes, Owner::kConvRead) == conv * (rows + verified));
            // An engine that copies what was accepted has stored a window after every verified token.
            CHECK(owned(price.bytes, Owner::kConvWrite) == conv * (tokens + verified));

            // Acceptance of verified tokens: two int64 ids of each.
            const std::int64_t activations = activation_bytes(model, s) + (tokens > rows ? 16 * tokens : 0);
            CHECK(owned(price.bytes, Owner::kActivations) == activations);
            std::int64_t independent = weights + kv * (s.decode.context_sum + 2 * tokens) +
                                       conv * (rows + tokens + 2 * verified) + activations;
            for (const Owner owner :
                 {Owner::kStateRead, Owner::kStateWrite, Owner::kBufferRead, Owner::kBufferWrite})
                independent += owned(price.bytes, owner);  // checked above
            CHECK(total(price.bytes) == independent);
        }
    }
}

TEST_CASE("every model prefills, verifies and samples", "[all_models]") {
    EngineSteps sampled = plain_engine();
    sampled.sampling = Sampling::kSampled;
    for (const ModelSpec& model : all_committed()) {
        INFO(model.name);
        const StepCost cost = step_cost(model, sampled);
        const std::vector<OperatorCost> chunk = cost.explain(prefill(1, 2048));
        // FLOP: 2 per active parameter and token at least (embeddings and the vectors of norms aside).
        const ModelWeights w = model_weights(model);
        std::int64_t flops = 0;
        for (const OperatorCost& op : chunk) flops += op.flops.value();
        CHECK(static_cast<double>(flops) > 0.99 * 2.0 * 2048 * static_cast<double>(w.body.active));
        CHECK(find(chunk, "softmax").launches == 3);
        CHECK(cost.price(prefill(1, 2048)).time > cost.price(prefill(1, 1024)).time);
    }
}
