// Sweeps: order and number of points, and mistakes at the place of the swept value.
#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("the committed sweep: 9 buffer lengths x 5 batches, the first axis slowest") {
    const Sweep sweep = load_sweep(KVSIM_SOURCE_DIR "/configs/sweeps/buffer_length.yaml");
    CHECK(sweep.name == "buffer_length");
    CHECK(sweep.experiment_file == KVSIM_SOURCE_DIR "/configs/experiments/steady_decode.yaml");
    CHECK(sweep.axes == std::vector<std::string>{"linear.buffer_length", "workload.batch"});
    REQUIRE(sweep.points.size() == 45);
    const char* const lengths[] = {"1", "2", "4", "8", "16", "24", "32", "64", "128"};
    const char* const batches[] = {"1", "8", "32", "128", "256"};
    for (std::size_t i = 0; i < 45; ++i) {
        const std::vector<Override> expected{{"linear.buffer_length", lengths[i / 5]},
                                             {"workload.batch", batches[i % 5]}};
        CHECK(sweep.points[i].assignments == expected);
    }
    CHECK(std::get<SteadyWorkload>(load_experiment(sweep.experiment_file).workload).context == 1024);
}

std::string sweep_error(const TemporaryFolder& folder, const std::string& text) {
    const std::string file = folder.write("s.yaml", "schema: kvsim/sweep/1\nname: s\n" + text);
    std::string message = config_error([&] { load_sweep(file); });
    for (std::size_t at = 0; (at = message.find(file)) != std::string::npos;)
        message.replace(at, file.size(), "s.yaml");
    return message;
}

TEST_CASE("mistakes of sweeps") {
    const TemporaryFolder folder;
    const std::string head = "experiment: steady_decode\naxes:\n";
    CHECK(sweep_error(folder, head + "  - {key: linear.buffer_length, values: [2, 4]}\n").empty());
    CHECK(sweep_error(folder, head + "  - {key: seed, values: []}\n") ==
          "s.yaml:5:25: axes[0].values: expected a list of at least 1 values, got 0");
    CHECK(sweep_error(folder, "experiment: steady_decode\naxes: []\n") ==
          "s.yaml:4:7: axes: expected a list of at least 1 values, got 0");
    CHECK(sweep_error(folder, head + "  - {key: seed, values: [1]}\n  - {key: seed, values: [2]}\n") ==
          "s.yaml:6:11: axes[1].key: `seed` is the key of an axis above");
    CHECK(sweep_error(folder, head + "  - {key: seed, values: [1, 2, 1]}\n") ==
          "s.yaml:5:32: axes[0].values[2]: `1` is given twice");
    CHECK(sweep_error(folder, head + "  - {key: seed, valeus: [1]}\n") ==
          "s.yaml:5:5: axes[0].values: missing required key\n"
          "s.yaml:5:17: axes[0].valeus: unknown key `valeus` (did you mean `values`?)");
    CHECK(sweep_error(folder, head + "  - {key: seed, values: [[1]]}\n") ==
          "s.yaml:5:26: axes[0].values[0]: expected a string, got a list");
    CHECK_THAT(
        sweep_error(folder, "experiment: stedy_decode\naxes: [{key: seed, values: [1]}]\n"),
        ContainsSubstring("s.yaml:3:13: experiment: no experiment is called `stedy_decode` (did you mean "
                          "`steady_decode`?)"));
}

TEST_CASE("every point is checked; a mistake stands at the value that makes it, once") {
    const TemporaryFolder folder;
    const std::string head = "experiment: steady_decode\naxes:\n";
    CHECK(sweep_error(folder, head + "  - {key: linear.buffer_length, values: [2, 0, 129]}\n"
                                     "  - {key: workload.batch, values: [1, 2, 3]}\n") ==
          "s.yaml:5:45: linear.buffer_length: expected an integer from 1 to 128, got `0`\n"
          "s.yaml:5:48: linear.buffer_length: expected an integer from 1 to 128, got `129`");
    CHECK(sweep_error(folder, head + "  - {key: workload.bach, values: [1, 2]}\n") ==
          "s.yaml:5:35: workload.bach: unknown key `bach` (did you mean `batch`?)");
    // A mistake that no value makes keeps its own place.
    const std::string broken = folder.write("broken.yaml", "schema: kvsim/experiment/1\nname: b\n");
    CHECK_THAT(sweep_error(folder, "experiment: ./broken.yaml\naxes: [{key: seed, values: [1, 2]}]\n"),
               ContainsSubstring(broken + ":1:1: device: missing required key\n" + broken +
                                 ":1:1: engine: missing required key\n"));
}

TEST_CASE("a sweep of 100,001 points is refused") {
    const TemporaryFolder folder;
    std::string values = "1";
    for (int i = 2; i <= 317; ++i) values += ", " + std::to_string(i);  // 317^2 = 100,489
    CHECK_THAT(sweep_error(folder, "experiment: steady_decode\naxes:\n  - {key: seed, values: [" + values +
                                       "]}\n  - {key: workload.batch, values: [" + values + "]}\n"),
               ContainsSubstring("axes: expected at most 100000 points"));
}

}  // namespace
}  // namespace kvsim
