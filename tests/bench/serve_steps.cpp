// Serves conversations on one replica, for instructions to be counted: serve_steps constant|priced REQUESTS.
// `constant`: the loop alone, a step takes 5 ms. `priced`: Qwen3.5-35B-A3B on an H200 under SGLang, every
// step priced. Prints the number of steps.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

#include "sim/cli/setup.hpp"
#include "sim/config/experiment.hpp"
#include "sim/serving/cohort_rows.hpp"
#include "sim/serving/serve.hpp"
#include "sim/serving/simulate.hpp"

namespace kvsim {
namespace {

class ConstantStep final : public StepPricer {
  public:
    ConstantStep() {
        price_.time = time_from_us(5000.0);
        price_.time_by_source[static_cast<std::size_t>(Source::kRoofline)] = price_.time;
    }
    StepPrice price(const StepShape&) const override { return price_; }

  private:
    StepPrice price_;
};

RunResult serve_constant(const WorkloadSpec& workload) {
    ServeSpec spec;
    spec.replica.max_running = 1024;
    spec.replica.step_tokens = 8192;
    spec.replica.pool.slots = 1024;
    spec.replica.pool.units = 1'000'000;
    spec.replica.pool.page_tokens = 16;
    spec.make_rows = [] {
        return std::make_unique<CohortRows>(make_decode_form({Form::kBuffered, 16, StateFormat::kFp32}), 16);
    };
    return serve(spec, *make_arrivals(workload, 1), ConstantStep());
}

RunResult run(bool priced, const char* requests) {
    const Experiment experiment = load_experiment(KVSIM_SOURCE_DIR "/configs/experiments/azure_conv.yaml",
                                                  {{"workload.requests", requests}});
    return priced ? simulate(experiment, make_step_cost(experiment)) : serve_constant(experiment.workload);
}

}  // namespace
}  // namespace kvsim

int main(int argc, char** argv) {
    const std::span<char*> words(argv, static_cast<std::size_t>(argc));
    if (words.size() != 3) return 2;
    fmt::print("{} steps\n", kvsim::run(std::string_view(words[1]) == "priced", words[2]).steps);
    return 0;
}
