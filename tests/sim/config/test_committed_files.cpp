// The committed configurations: each loads, is called what it holds, and holds what its sources say.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("the committed steady-decode experiment says what it is about") {
    const Experiment e = load_experiment(kSteady);
    CHECK(e.name == "steady_decode");
    CHECK(e.model.name == "qwen3.5-35b-a3b");
    CHECK(e.model.layers() == 40);
    CHECK(linear_layers(e.model) == 30);
    CHECK(attention_layers(e.model) == 10);
    CHECK(linear_mixer(e.model)->v_heads == 32);
    CHECK(e.device.memory == Bytes(143'771LL << 20));
    CHECK(e.device.peak_bandwidth == Bandwidth(4.8e12));
    CHECK(e.device.l2 == Bytes(60LL << 20));
    CHECK(e.device.sm_count == 132);
    CHECK(e.engine.max_running_requests == 4096);
    CHECK(e.linear.form == Form::kBuffered);
    CHECK(e.linear.buffer_length == 16);
    CHECK(e.seed == 1);
    CHECK_FALSE(e.horizon);
    const auto& steady = std::get<SteadyWorkload>(e.workload);
    CHECK(steady.batch == 128);
    CHECK(steady.context == 1024);
    CHECK(steady.steps == 384);
    CHECK(e.profile_dir == KVSIM_SOURCE_DIR "/profiles/h200");
}

// SGLang's rule for the static fraction, worked out for the committed device: see
// configs/engines/sglang.yaml.
TEST_CASE("the SGLang engine file holds SGLang's own fraction for the H200") {
    const Experiment e = load_experiment(kSteady);
    const double reserved = 512 + 1.5 * e.engine.chunked_prefill_tokens + 1024.0 / 8 + 2 * 256;
    const double total = static_cast<double>(e.device.memory.value() >> 20);
    CHECK(e.engine.memory.fraction == Approx(1 - reserved / total).margin(0.0005));
}

// Published statistics of the Azure 2023 conversation trace: medians of 1,020 and 129 tokens, 19,366
// requests.
TEST_CASE("the committed Azure scenario has the trace's statistics") {
    const Experiment e = load_experiment(kAzure);
    const auto& azure = std::get<SyntheticWorkload>(e.workload);
    CHECK(azure.requests == 19366);
    CHECK(azure.rate.value() == Approx(19366 / 3501.0).epsilon(0.001));
    const auto median = [](const LengthDistribution& lengths) {
        REQUIRE(lengths.kind == LengthDistribution::Kind::kEmpirical);
        REQUIRE(lengths.quantile_tokens.size() % 2 == 1);
        return lengths.quantile_tokens[lengths.quantile_tokens.size() / 2];
    };
    CHECK(median(azure.prompt) == 1020);
    CHECK(median(azure.output) == 129);
}

// Column `column` of the trace, sorted.
std::vector<double> sorted_column(const std::string& csv, int column) {
    std::vector<double> values;
    std::ifstream stream(csv);
    std::string line, cell;
    for (std::getline(stream, line); std::getline(stream, line);) {
        std::istringstream cells(line);
        for (int i = 0; i <= column; ++i) std::getline(cells, cell, ',');
        values.push_back(std::stod(cell));
    }
    std::sort(values.begin(), values.end());
    return values;
}

TEST_CASE("the committed quantiles are those of the trace") {
    const std::string csv = KVSIM_SOURCE_DIR "/../shared/traces/azure2023/AzureLLMInferenceTrace_conv.csv";
    if (!std::filesystem::exists(csv)) {
        std::cerr << "SKIPPED: quantiles against the Azure trace: no file " << csv << '\n';
        return;
    }
    const Experiment e = load_experiment(kAzure);
    const auto& azure = std::get<SyntheticWorkload>(e.workload);
    for (const int column : {1, 2}) {
        const std::vector<double> sorted = sorted_column(csv, column);
        REQUIRE(sorted.size() == 19366);
        const std::vector<double>& quantiles = (column == 1 ? azure.prompt : azure.output).quantile_tokens;
        REQUIRE(quantiles.size() == 201);
        for (std::size_t i = 0; i < 201; ++i) {
            const double rank = static_cast<double>(i) / 200.0 * static_cast<double>(sorted.size() - 1);
            const auto low = static_cast<std::size_t>(rank);
            const std::size_t high = std::min(low + 1, sorted.size() - 1);
            const double exact =
                sorted[low] + (rank - static_cast<double>(low)) * (sorted[high] - sorted[low]);
            CHECK(std::abs(quantiles[i] - exact) <= 0.5 + 1e-9);
        }
    }
}

TEST_CASE("every committed file loads, and files are called what they hold") {
    int models = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kConfigs + "/models")) {
        const std::string stem = entry.path().stem().string();
        INFO(stem);
        CHECK(load_experiment(kSteady, {{"model", stem}}).model.name == stem);
        ++models;
    }
    CHECK(models == 19);  // 9 of Qwen, 6 of Nemotron, Granite, Falcon-H1, Kimi-Linear, MiniMax
    for (const char* folder : {"/devices", "/engines"}) {
        for (const auto& entry : std::filesystem::directory_iterator(kConfigs + folder)) {
            const std::string stem = entry.path().stem().string();
            const Experiment e = load_experiment(kSteady, {{std::string(folder).substr(1, 6), stem}});
            CHECK((folder[1] == 'd' ? e.device.name : e.engine.name) == stem);
        }
    }
    for (const auto& entry : std::filesystem::directory_iterator(kConfigs + "/experiments")) {
        CHECK(load_experiment(entry.path().string()).name == entry.path().stem().string());
    }
    for (const auto& entry : std::filesystem::directory_iterator(KVSIM_SOURCE_DIR "/workloads")) {
        if (entry.path().extension() != ".yaml") continue;
        CHECK_NOTHROW(load_experiment(kAzure, {{"workload", entry.path().stem().string()}}));
    }
}

}  // namespace
}  // namespace kvsim
