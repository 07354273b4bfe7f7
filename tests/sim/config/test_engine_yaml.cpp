// How an engine file says what a step fuses, overlaps and waits for.
#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

EngineSteps steps_of(const std::vector<Override>& overrides) {
    return load_experiment(kSteady, overrides).engine.steps;
}

std::string error_of(const std::vector<Override>& overrides) {
    return config_error([&] { load_experiment(kSteady, overrides); });
}

TEST_CASE("the committed engines differ in what they fuse and overlap") {
    const EngineSteps sglang = steps_of({{"engine", "sglang"}});
    CHECK(sglang.has(Fusion::kQkNormRope));
    CHECK_FALSE(sglang.has(Fusion::kProjectionViews));
    CHECK(sglang.has(Overlap::kGateProjection));
    CHECK(sglang.launch_gap == time_from_us(0.5));
    // Qwen3-Next's code has separate kernels where Qwen3.5's has one.
    CHECK_FALSE(sglang.serving("qwen3-next-80b-a3b").has(Fusion::kQkNormRope));
    CHECK(sglang.serving("qwen3-next-80b-a3b").has(Fusion::kSharedGate));
    CHECK(sglang.serving("qwen3.5-4b") == sglang);

    CHECK(steps_of({{"engine", "vllm"}}).overlap_tokens == 256);
    const EngineSteps ideal = steps_of({{"engine", "ideal"}});
    CHECK(ideal.host_gap == Time());
    for (int i = 0; i < kFusionCount; ++i) CHECK(ideal.has(static_cast<Fusion>(i)));
}

TEST_CASE("steps of an engine read back as they were written") {
    for (const char* engine : {"sglang", "vllm", "ideal"}) {
        INFO(engine);
        const Experiment e = load_experiment(kSteady, {{"engine", engine},
                                                       {"engine.steps.linear_kernels", "published"},
                                                       {"engine.steps.sampling", "sampled"},
                                                       {"parallelism.tp", "4"},
                                                       {"parallelism.ep", "4"},
                                                       {"parallelism.experts", "all_to_all"}});
        const TemporaryFolder folder;
        const Experiment back = load_experiment(folder.write("resolved.yaml", to_yaml(e)));
        CHECK(back.engine.steps == e.engine.steps);
        CHECK(back.engine.steps.linear_kernels == LinearKernels::kPublished);
        CHECK(back.parallelism == Parallelism{4, 4, 1, ExpertExchange::kAllToAll});
    }
}

TEST_CASE("mistakes in the steps of an engine are named") {
    CHECK_THAT(error_of({{"engine.steps.fused", "[qk_norm_rop]"}}), ContainsSubstring("qk_norm_rope"));
    CHECK_THAT(error_of({{"engine.steps.fused", "[split_conv, split_conv]"}}), ContainsSubstring("twice"));
    CHECK_THAT(error_of({{"engine.steps.launch_gap", "1"}}), ContainsSubstring("launch_gap"));
    CHECK_THAT(error_of({{"engine.steps.gap", "1 us"}}), ContainsSubstring("unknown key"));
    CHECK_THAT(error_of({{"parallelism.tp", "0"}}), ContainsSubstring("parallelism.tp"));
    const Override island{"device",
                          "{name: island, memory: 80 GiB, peak_bandwidth: 1 TB/s, peak_bf16: 100 TFLOP/s, "
                          "l2: 50 MiB, sm_count: 100, profile: island}"};
    CHECK(error_of({island}) == "");
    CHECK_THAT(error_of({island, {"parallelism.tp", "2"}}),
               ContainsSubstring("parallelism.tp: expected 1, because device island has no link_bandwidth"));
    CHECK_THAT(error_of({{"engine.steps.unfused", "{qwen3-nxt-80b-a3b: [qk_norm_rope]}"}}),
               ContainsSubstring("engine.steps.unfused: no model is called `qwen3-nxt-80b-a3b` (did you mean "
                                 "`qwen3-next-80b-a3b`?)"));
}

TEST_CASE("ranks that cannot share the model are placed where they are asked for") {
    CHECK_THAT(
        error_of({{"parallelism.tp", "3"}}),
        ContainsSubstring("parallelism: model qwen3.5-35b-a3b: linear: 32 value heads cannot be divided"));
    const TemporaryFolder folder;
    const std::string file =
        folder.write("experiment.yaml",
                     "schema: kvsim/experiment/1\nname: x\nmodel: qwen3.5-4b\ndevice: h200\nengine: sglang\n"
                     "workload: {kind: steady, batch: 1, context: 1, steps: 1}\nparallelism: {tp: 3}\n");
    CHECK_THAT(config_error([&] { load_experiment(file); }),
               ContainsSubstring("experiment.yaml:7:14: parallelism: model"));
}

}  // namespace
}  // namespace kvsim
