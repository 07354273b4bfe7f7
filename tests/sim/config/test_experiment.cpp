// Experiments: references, overrides, what is physically impossible, and the written form that reads back.
#include "sim/config/experiment.hpp"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "sim/base/random.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// What loading reports; empty when it succeeds.
std::string load_error(const std::string& file, const std::vector<Override>& overrides) {
    return config_error([&] { load_experiment(file, overrides); });
}

// ---- overrides -------------------------------------------------------------------------------------------

TEST_CASE("any key can be set by its path, in files that are only named too") {
    const Experiment e = load_experiment(kSteady, {{"engine.max_running_requests", "64"},
                                                   {"device.memory", "80 GiB"},
                                                   {"model.parts.ffn.top_k", "4"},
                                                   {"workload.batch", "8"},
                                                   {"linear.buffer_length", "32"},
                                                   {"seed", "7"},
                                                   {"horizon", "90 s"}});
    CHECK(e.engine.name == "sglang");
    CHECK(e.engine.max_running_requests == 64);
    CHECK(e.engine.chunked_prefill_tokens == 8192);
    CHECK(e.device.memory == Bytes(80LL << 30));
    for (const LayerKind& kind : e.model.kinds) {
        CHECK(std::get<MoeFfn>(*kind.ffn).top_k == 4);
        CHECK(std::get<MoeFfn>(*kind.ffn).experts == 256);
    }
    CHECK(std::get<SteadyWorkload>(e.workload).batch == 8);
    CHECK(e.linear.buffer_length == 32);
    CHECK(e.seed == 7);
    CHECK(e.horizon == Time(90'000'000'000'000));
}

TEST_CASE("overrides apply in order: a part set anew forgets what was set inside it before") {
    const Experiment first = load_experiment(kSteady, {{"model.hidden", "4096"}, {"model", "qwen3.5-4b"}});
    CHECK(first.model.hidden == 2560);
    const Experiment last = load_experiment(kSteady, {{"model", "qwen3.5-4b"}, {"model.hidden", "4096"}});
    CHECK(last.model.name == "qwen3.5-4b");
    CHECK(last.model.hidden == 4096);
}

TEST_CASE("a length distribution set by override takes the place of the file's") {
    const Experiment e = load_experiment(kAzure, {{"workload.prompt_tokens", "{constant: 100}"}});
    const auto& azure = std::get<SyntheticWorkload>(e.workload);
    CHECK(azure.prompt.kind == LengthDistribution::Kind::kConstant);
    CHECK(azure.prompt.min == azure.prompt.value);  // nothing clamps what is constant
    CHECK(azure.prompt.max == azure.prompt.value);
    CHECK(azure.prompt.value == 100);
    CHECK(azure.output.kind == LengthDistribution::Kind::kEmpirical);
}

TEST_CASE("mistakes of overrides are placed at the override") {
    CHECK(load_error(kSteady, {{"linear.buffer_length", "0"}}) ==
          "--set linear.buffer_length=0: linear.buffer_length: expected an integer from 1 to 128, got `0`");
    CHECK(load_error(kSteady, {{"linear.bufer_length", "4"}}) ==
          "--set linear.bufer_length=4: linear.bufer_length: unknown key `bufer_length` (did you mean "
          "`buffer_length`?)");
    CHECK(load_error(kSteady, {{"engine.max_runing_requests", "4"}}) ==
          "--set engine.max_runing_requests=4: engine.max_runing_requests: unknown key `max_runing_requests` "
          "(did "
          "you mean `max_running_requests`?)");
    CHECK(load_error(kSteady, {{"sede", "4"}}) ==
          "--set sede=4: sede: unknown key `sede` (did you mean `seed`?)");
    CHECK(load_error(kSteady, {{"seed", "x"}, {"horizon", "9"}}) ==
          "--set horizon=9: horizon: expected a time such as `5 ms`, got `9` without a unit; units: h, min, "
          "s, ms, "
          "us, ns, ps\n"
          "--set seed=x: seed: expected an integer of at least 0, got `x`");
    CHECK(load_error(kAzure, {{"workload.rate", "-3 /s"}}) ==
          "--set workload.rate=-3 /s: workload.rate: expected a rate above zero, got `-3 /s`");
    CHECK(load_error(kSteady, {{"seed.x", "4"}}) ==
          "--set seed.x=4: seed: expected an integer of at least 0, got a map");
    CHECK_THAT(load_error(kSteady, {{"engine.max_running_requests", "4"}, {"engine.base", "sglang"}}),
               ContainsSubstring("--set engine.base=sglang: engine.base: unknown key `base`"));
}

TEST_CASE("a trace takes the place of the scenario's arrivals and lengths") {
    const TemporaryFolder folder;
    const std::string trace = folder.write("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n");
    for (const std::string& file : {kAzure, kSteady}) {
        const Experiment e = load_experiment(file, {{"workload.trace", trace}});
        CHECK(std::get<TraceWorkload>(e.workload).path == trace);
        CHECK_THAT(to_yaml(e), ContainsSubstring("kind: trace"));
        CHECK_THAT(to_yaml(e), !ContainsSubstring("rate") && !ContainsSubstring("quantiles"));
    }
    CHECK(load_error(kAzure, {{"workload.trace", folder / "none.csv"}}) ==
          "--set workload.trace=" + (folder / "none.csv") +
              ": workload.trace: no such file: " + (folder / "none.csv"));
}

// ---- linear forms ----------------------------------------------------------------------------------------

TEST_CASE("what an override says beside a trace is refused, not ignored") {
    const TemporaryFolder folder;
    const std::string trace = folder.write("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n");
    CHECK(load_error(kAzure, {{"workload.trace", trace}, {"workload.rate", "9 /s"}}) ==
          "--set workload.rate=9 /s: workload.rate: the trace takes the place of this key");
    // The scenario of the file is at rest, and one override may hold both.
    CHECK(load_error(kAzure, {{"workload.trace", trace}}).empty());
}

TEST_CASE("a buffer of one record is the recurrent form, and written so") {
    const Experiment e = load_experiment(kSteady, {{"linear.buffer_length", "1"}});
    CHECK(e.linear.form == Form::kRecurrent);
    CHECK(e.linear.buffer_length == 1);
    CHECK_THAT(to_yaml(e),
               ContainsSubstring("linear: {form: recurrent, buffer_length: 1, state_dtype: fp32}"));
}

TEST_CASE("--set linear.form=recurrent replaces the file's choice of buffer") {
    const Experiment e = load_experiment(kSteady, {{"linear.form", "recurrent"}});
    CHECK(e.linear.form == Form::kRecurrent);
    CHECK(e.linear.buffer_length == 1);
    CHECK(
        load_error(kSteady, {{"linear.form", "recurrent"}, {"linear.buffer_length", "8"}}) ==
        "--set linear.buffer_length=8: linear.buffer_length: expected 1, because the form recurrent buffers "
        "nothing, got 8");
}

TEST_CASE("defaults and limits of the linear layers") {
    const Experiment e = load_experiment(kSteady, {{"linear", "{}"}});
    CHECK(e.linear.form == Form::kRecurrent);
    CHECK(e.linear.buffer_length == 1);
    CHECK(e.linear.state == StateFormat::kFp32);
    CHECK(load_experiment(kSteady, {{"linear.buffer_length", "128"}}).linear.buffer_length == 128);
    CHECK_THAT(load_error(kSteady, {{"linear.buffer_length", "129"}}),
               ContainsSubstring("from 1 to 128, got `129`"));
    CHECK_THAT(
        load_error(kSteady, {{"linear.form", "direct"}}),
        ContainsSubstring("linear.form: expected one of recurrent, buffered, auto, got direct, which has no "
                          "kernel yet"));
    CHECK_THAT(load_error(kSteady, {{"linear.state_dtype", "fp16"}}),
               ContainsSubstring("linear.state_dtype: expected one of fp32, bf16, split, got `fp16`"));
    CHECK(load_error(kSteady, {{"linear", "{form: buffered}"}}) ==
          "--set linear={form: buffered}: linear.buffer_length: missing required key");
}

// ---- references ------------------------------------------------------------------------------------------

const std::string kHead = "schema: kvsim/experiment/1\nname: test\n";
const std::string kSteadyWork = "workload: {kind: steady, batch: 1, context: 1, steps: 1}\n";

// Names of the committed files of a folder, sorted.
std::string names_in(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(kConfigs + folder))
        names.insert(entry.path().stem().string());
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    return list;
}

TEST_CASE("a missing name lists the names that exist") {
    const TemporaryFolder folder;
    const std::string file =
        folder.write("configs/experiments/e.yaml",
                     kHead + "model: qwen3.5-4\ndevice: h20\nengine: sglang\n" + kSteadyWork);
    CHECK(load_error(file, {}) ==
          file + ":3:8: model: no model is called `qwen3.5-4` (did you mean `qwen3.5-4b`?); there are: " +
              names_in("/models") + "\n" + file +
              ":4:9: device: no device is called `h20` (did you mean `h200`?); there are: " +
              names_in("/devices"));
    CHECK(load_error(file, {{"model", "./none.yaml"}, {"device", "h200"}}) ==
          "--set model=./none.yaml: model: no such file: " +
              (std::filesystem::current_path() / "none.yaml").string());
    CHECK_THAT(load_error(folder / "absent.yaml", {}), ContainsSubstring("absent.yaml: no such file"));
}

TEST_CASE("files beside the experiment come before the program's own; paths are relative to the file") {
    const TemporaryFolder folder;
    const std::string engine =
        "schema: kvsim/engine/1\nname: sglang\nmax_running_requests: 48\nchunked_prefill_tokens: 2048\n"
        "memory: {fraction: 0.5, activations: reserved, pools: bytes}\n";
    folder.write("configs/engines/sglang.yaml", engine);
    folder.write("elsewhere/other.yaml", engine);
    folder.write("profiles/h200/fit.yaml", "");
    const std::string file =
        folder.write("configs/experiments/e.yaml",
                     kHead + "model: qwen3.5-4b\ndevice: h200\nengine: sglang\n" + kSteadyWork);
    const Experiment e = load_experiment(file);
    CHECK(e.engine.memory.fraction == 0.5);
    CHECK(e.model.hidden == 2560);
    CHECK(e.profile_dir == folder / "profiles/h200");
    const std::string by_path = folder.write(
        "configs/experiments/p.yaml",
        kHead + "model: qwen3.5-4b\ndevice: h200\nengine: ../../elsewhere/other.yaml\n" + kSteadyWork);
    CHECK(load_experiment(by_path).engine.max_running_requests == 48);
}

TEST_CASE("the folder KVSIM_CONFIGS comes before the program's own") {
    const TemporaryFolder folder;
    folder.write("mine/models/tiny.yaml",
                 "schema: kvsim/model/2\nname: tiny\nhidden: 64\nvocab: 100\ntied_embeddings: true\nparts:\n"
                 "  linear: {type: gdn, k_heads: 1, v_heads: 2, k_dim: 128, v_dim: 128, conv_kernel: 4}\n"
                 "  ffn: {type: dense, width: 96, activation: swiglu}\n"
                 "layers: {L: [linear, ffn]}\npattern: L\nrepeat: 3\n");
    REQUIRE(setenv("KVSIM_CONFIGS", (folder / "mine").c_str(), 1) == 0);
    const std::string error = load_error(kSteady, {{"model", "tiny"}});
    REQUIRE(unsetenv("KVSIM_CONFIGS") == 0);
    CHECK(error.empty());
    CHECK_THAT(load_error(kSteady, {{"model", "tiny"}}), ContainsSubstring("no model is called `tiny`"));
}

TEST_CASE("a part may change single keys of a named one") {
    const TemporaryFolder folder;
    const auto with_engine = [&](const std::string& engine) {
        return folder.write(
            "configs/experiments/e.yaml",
            kHead + "model: qwen3.5-4b\ndevice: h200\nengine: " + engine + "\n" + kSteadyWork);
    };
    std::string file = with_engine("{base: sglang, name: small, max_running_requests: 64}");
    const Experiment e = load_experiment(file);
    CHECK(e.engine.name == "small");
    CHECK(e.engine.max_running_requests == 64);
    CHECK(e.engine.memory == load_experiment(kSteady).engine.memory);
    file = with_engine("{base: sglang, max_running_request: 64}");
    CHECK(load_error(file, {}) ==
          file +
              ":5:24: engine.max_running_request: unknown key `max_running_request` (did "
              "you mean `max_running_requests`?)");
    file = with_engine("{base: sglagn}");
    CHECK_THAT(load_error(file, {}),
               ContainsSubstring(file + ":5:16: engine.base: no engine is called `sglagn`"));
    file = with_engine("{base: [sglang]}");
    CHECK(load_error(file, {}) == file + ":5:16: engine.base: expected a name or a path, got a list");
    file = with_engine("[sglang]");
    CHECK(load_error(file, {}) == file + ":5:9: engine: expected a map, got a list");
    file = with_engine("../../configs/experiments/e.yaml");
    CHECK_THAT(
        load_error(file, {}),
        ContainsSubstring("e.yaml:1:9: schema: expected `schema: kvsim/engine/1`, got `kvsim/experiment/1`"));
}

// ---- what cannot be --------------------------------------------------------------------------------------

TEST_CASE("sizes that cannot be") {
    const auto message = [](const std::string& path, const std::string& value,
                            const std::string& file = kSteady) {
        const std::string text = load_error(file, {{path, value}});
        const std::string head = "--set " + path + "=" + value + ": " + path + ": ";
        return text.starts_with(head) ? text.substr(head.size()) : text;
    };
    CHECK(message("model.parts.linear.v_heads", "33") == "expected a multiple of k_heads (16), got 33");
    CHECK(message("model.parts.attention.q_heads", "15") == "expected a multiple of kv_heads (2), got 15");
    CHECK(message("model.parts.ffn.top_k", "257") == "expected at most the number of experts (256), got 257");
    CHECK(message("model.hidden", "0") == "expected an integer from 1 to 65536, got `0`");
    CHECK(message("model.parts.ffn.type", "sparse") ==
          "expected one of gdn, kda, mamba2, lightning, gqa, mla, dense, moe, got `sparse`");
    CHECK(message("engine.memory.fraction", "0") ==
          "expected a finite number above 0 and of at most 1, got `0`");
    CHECK(message("engine.memory.fraction", "1.01") ==
          "expected a finite number above 0 and of at most 1, got `1.01`");
    CHECK(message("engine.memory.fraction", "1").empty());
    CHECK(message("device.memory", "0 B") == "expected a size in bytes above zero, got `0 B`");
    CHECK(message("device.peak_bandwidth", "-1 TB/s") == "expected a bandwidth above zero, got `-1 TB/s`");
    CHECK(message("device.link_bandwidth", "1 B/s") == "expected at least 1 MB/s, got 1 B/s");
    CHECK(message("device.peak_bf16", "1 MFLOP/s") == "expected at least 1 GFLOP/s, got 1 MFLOP/s");
    CHECK(message("name", "../up") == "expected a name of letters, digits, `.`, `_` and `-`, got `../up`");
    CHECK(message("workload.kind", "shut", kAzure) ==
          "expected one of steady, poisson, gamma, closed, trace, got `shut`");
    CHECK(message("workload.requests", "0", kAzure) == "expected an integer from 1 to 1000000000, got `0`");
    CHECK(message("workload.prompt_tokens", "5", kAzure) == "expected a map, got `5`");
    CHECK(message("workload.prompt_tokens", "{constant: 1, quantiles: [1, 2]}", kAzure) ==
          "expected exactly one of constant, log_normal, quantiles");
    CHECK_THAT(
        message("workload.prompt_tokens", "{quantiles: [5, 9, 7]}", kAzure),
        ContainsSubstring("prompt_tokens.quantiles[2]: expected quantiles that never fall, got 7 after 9"));
    CHECK_THAT(message("workload.prompt_tokens", "{quantiles: [5]}", kAzure),
               ContainsSubstring("prompt_tokens.quantiles: expected a list of at least 2 values, got 1"));
    CHECK_THAT(message("workload.output_tokens", "{log_normal: {median: 100, sigma: -1}}", kAzure),
               ContainsSubstring("output_tokens.log_normal.sigma: expected a finite number of at least 0"));
    CHECK_THAT(
        message("workload.output_tokens", "{log_normal: {median: 9, sigma: 1}, min: 9, max: 5}", kAzure),
        ContainsSubstring("output_tokens.max: expected at least min (9), got 5"));
}

TEST_CASE("all mistakes of an experiment and its files at once") {
    const TemporaryFolder folder;
    const std::string device =
        folder.write("configs/devices/mine.yaml",
                     "schema: kvsim/device/1\nname: mine\nmemory: 80\npeak_bandwidth: 3 TB/s\n"
                     "peak_bf16: 1 PFLOP/s\nsm_count: 0\nprofile: h200\n");
    const std::string file =
        folder.write("configs/experiments/e.yaml",
                     kHead + "model: qwen3.5-4b\ndevice: mine\nengine: sglang\nsedd: 3\n" + kSteadyWork);
    CHECK(load_error(file, {}) ==
          device + ":1:1: device.l2: missing required key\n" + device +
              ":3:9: device.memory: expected a size in bytes such as `64 MiB`, got `80` without a unit; "
              "units: TiB, "
              "TB, GiB, GB, MiB, MB, KiB, kB, B\n" +
              device + ":6:11: device.sm_count: expected an integer from 1 to 2147483647, got `0`\n" + file +
              ":6:1: sedd: unknown key `sedd` (did you mean `seed`?)");
}

// ---- the written form ------------------------------------------------------------------------------------

// Writing, reading and writing again gives the same text; the fields are compared where a writer could drop
// one.
void check_round_trip(const Experiment& e, const TemporaryFolder& folder) {
    const std::string text = to_yaml(e);
    INFO(text);
    const Experiment back = load_experiment(folder.write("deep/down/resolved.yaml", text));
    CHECK(to_yaml(back) == text);
    CHECK(back.name == e.name);
    CHECK(back.model == e.model);
    CHECK(back.device.name == e.device.name);
    CHECK(back.device.memory == e.device.memory);
    CHECK(back.device.peak_bandwidth == e.device.peak_bandwidth);
    CHECK(back.device.peak_bf16 == e.device.peak_bf16);
    CHECK(back.device.l2 == e.device.l2);
    CHECK(back.device.sm_count == e.device.sm_count);
    CHECK(back.device.profile == e.device.profile);
    CHECK(back.engine.name == e.engine.name);
    CHECK(back.engine.memory == e.engine.memory);
    CHECK(back.engine.max_running_requests == e.engine.max_running_requests);
    CHECK(back.engine.chunked_prefill_tokens == e.engine.chunked_prefill_tokens);
    CHECK(back.linear.form == e.linear.form);
    CHECK(back.linear.buffer_length == e.linear.buffer_length);
    CHECK(back.linear.state == e.linear.state);
    CHECK(back.workload.index() == e.workload.index());
    CHECK(back.seed == e.seed);
    CHECK(back.horizon == e.horizon);
    CHECK(back.profile_dir == e.profile_dir);
}

TEST_CASE("the written form reads back to the same experiment") {
    const TemporaryFolder folder;
    check_round_trip(load_experiment(kSteady), folder);
    check_round_trip(load_experiment(kSteady, {{"model", "qwen3.5-27b"}, {"horizon", "1.5 ms"}}), folder);
    check_round_trip(load_experiment(kSteady, {{"linear", "{}"}, {"profile_dir", "some/where"}}), folder);
    check_round_trip(load_experiment(kAzure), folder);
    const std::string trace = folder.write("trace with space.csv", "x\n");
    check_round_trip(load_experiment(kAzure, {{"workload.trace", trace}}), folder);

    Experiment e =
        load_experiment(kAzure, {{"workload.prompt_tokens", "{log_normal: {median: 812.3, sigma: 0.71}}"},
                                 {"workload.output_tokens", "{constant: 7}"}});
    check_round_trip(e, folder);
    const Experiment back = load_experiment(folder.write("r.yaml", to_yaml(e)));
    const auto& workload = std::get<SyntheticWorkload>(back.workload);
    CHECK(workload.rate == Frequency(5.53));
    CHECK(workload.prompt.median == 812.3);
    CHECK(workload.prompt.sigma == 0.71);
    CHECK(workload.prompt.min == 1);
    CHECK(workload.prompt.max == 1'000'000);
    CHECK(workload.output.value == 7);
}

TEST_CASE("random numbers survive the written form to the last bit") {
    const TemporaryFolder folder;
    RandomStream random(3, "experiments");
    Experiment e = load_experiment(kAzure);
    for (int i = 0; i < 50; ++i) {
        e.seed = random.bits() >> 1;
        e.engine.memory.fraction = random.uniform() + 1e-9;
        e.device.peak_bf16 = FlopRate(random.log_normal(1e14, 3.0));
        e.horizon = Time(static_cast<std::int64_t>(random.bits() >> 2));
        auto& workload = std::get<SyntheticWorkload>(e.workload);
        workload.rate = Frequency(random.log_normal(1.0, 3.0));
        workload.prompt.quantile_tokens = {1.0, 1.0 + random.exponential(100.0), 5000.0 + random.uniform()};
        check_round_trip(e, folder);
        const Experiment back = load_experiment(folder.write("r.yaml", to_yaml(e)));
        CHECK(std::get<SyntheticWorkload>(back.workload).prompt.quantile_tokens ==
              workload.prompt.quantile_tokens);
        CHECK(std::get<SyntheticWorkload>(back.workload).rate == workload.rate);
    }
}

}  // namespace
}  // namespace kvsim
