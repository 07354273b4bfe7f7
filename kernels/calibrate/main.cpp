// kvcalib: measures the kernels on the GPU of this machine. Exit codes: 0 good, 1 failed, 2 bad input.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "kernels/calibrate/counters.hpp"
#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/device_info.hpp"
#include "kernels/calibrate/grid.hpp"
#include "kernels/calibrate/measure.hpp"
#include "kernels/calibrate/products.hpp"
#include "kernels/calibrate/profile_writer.hpp"
#include "kernels/calibrate/sustained.hpp"
#include "kernels/calibrate/sustained_writer.hpp"
#include "sim/base/error.hpp"

namespace kvsim::calibrate {
namespace {

struct MeasureArguments {
    std::string grid, out, only, revision;
    bool no_counters = false;
};

std::string mhz(std::optional<int> clock) {
    return clock ? fmt::format("{} MHz", *clock) : "unknown (no NVML)";
}

int check() {
    const DeviceInfo d = inspect_device();
    const Clocks clocks = ClockReader(d.pci_bus_id).read();
    const std::string refused = counters_refused();
    fmt::print("device        {}\n", d.name);
    fmt::print("capability    {}.{}\n", d.major, d.minor);
    fmt::print("SMs           {}\n", d.sms);
    fmt::print("L2            {:.1f} MiB\n", static_cast<double>(d.l2.value()) / (1 << 20));
    fmt::print("memory        {:.1f} GiB\n", static_cast<double>(d.memory.value()) / (1 << 30));
    fmt::print("ECC           {}\n", d.ecc ? "on" : "off");
    fmt::print("driver        {} (CUDA {})\n", d.driver, d.cuda_driver);
    fmt::print("runtime       CUDA {}, CUPTI {}\n", d.cuda_runtime, d.cupti);
    fmt::print("SM clock      {}\n", mhz(clocks.sm_mhz));
    fmt::print("memory clock  {}\n", mhz(clocks.memory_mhz));
    fmt::print("clock limit   {}\n",
               clocks.limit ? kClockLimitNames[static_cast<std::size_t>(*clocks.limit)] : "unknown");
    fmt::print("counters      {}\n", refused.empty() ? "permitted" : "not permitted: " + refused);
    return 0;
}

std::vector<Case> select(std::vector<Case> cases, const std::string& only) {
    if (only.empty()) return cases;
    std::erase_if(cases, [&](const Case& c) { return name(c.kernel) != only; });
    if (cases.empty()) {
        Mistake mistake;
        mistake.path = "--only";
        mistake.message = fmt::format("the grid has no kernel `{}`", only);
        throw ConfigError(mistake);
    }
    return cases;
}

Provenance provenance_of(const MeasureArguments& arguments) {
    return {arguments.grid, read_text(arguments.grid),
            arguments.revision.empty() ? source_revision() : arguments.revision, utc_date()};
}

int run_measure(const MeasureArguments& arguments) {
    const std::vector<Case> cases = select(load_grid(arguments.grid), arguments.only);
    const DeviceInfo device = inspect_device();
    check_profile_folder(arguments.out, device);
    fmt::print(stderr, "{}: {} rows from {}\n", device.name, cases.size(), arguments.grid);

    const Provenance provenance = provenance_of(arguments);
    const Measurement m = measure(cases, device, {.counters = !arguments.no_counters});
    write_profile(arguments.out, m, device, provenance);

    fmt::print("{}: {} rows, {} failed the comparison, {} not settled, {} with clocks held down\n",
               arguments.out, m.rows.size(), m.failed, m.unsettled, m.limited);
    if (!m.no_cupti_us.empty()) fmt::print("no cupti_us: {}\n", m.no_cupti_us);
    if (!m.no_counters.empty()) fmt::print("no counters: {}\n", m.no_counters);
    return m.failed > 0 ? 1 : 0;  // rows without a time, which `kvsim fit` refuses
}

int run_sustained(const MeasureArguments& arguments) {
    const SustainedPlan plan = load_sustained_plan(arguments.grid);
    products_library();  // what is missing here is told before there is a GPU
    const DeviceInfo device = inspect_device();
    const Provenance provenance = provenance_of(arguments);
    const SustainedMeasurement m = measure_sustained(plan, device);
    write_sustained(arguments.out, plan, m, device, provenance);
    fmt::print("{}: {} loads, {} bursts\n", arguments.out, m.loads.size(), plan.bursts.size());
    return 0;
}

int run(int argc, char** argv) {
    CLI::App app("Measures kvsim's kernels on the GPU of this machine");
    app.require_subcommand(1);
    app.add_subcommand("check", "What this machine is, and whether hardware counters may be read");
    CLI::App* const command =
        app.add_subcommand("measure", "Verify and time the launches of a grid; write a profile");
    MeasureArguments arguments;
    CLI::App* const sustained = app.add_subcommand(
        "sustained", "Run matrix products for as long as a prefill; write rates, clocks and power over time");
    for (CLI::App* const one : {command, sustained}) {
        one->add_option("--grid", arguments.grid, "YAML file of configs/calibration")->required();
        one->add_option("--out", arguments.out, "Folder of the profile, such as profiles/h200")->required();
        one->add_option("--revision", arguments.revision,
                        "Source revision for the manifest (default: from git)");
    }
    command->add_option("--only", arguments.only, "Measure this kernel alone; the files of the others stay")
        ->check(CLI::IsMember(std::vector<std::string>(kKernelNames.begin(), kKernelNames.end())));
    command->add_flag("--no-counters", arguments.no_counters, "Leave the hardware counters out");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (command->parsed()) return run_measure(arguments);
    if (sustained->parsed()) return run_sustained(arguments);
    return check();
}

}  // namespace
}  // namespace kvsim::calibrate

int main(int argc, char** argv) {
    using kvsim::calibrate::CudaError;
    try {
        return kvsim::calibrate::run(argc, argv);
    } catch (const kvsim::ConfigError& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    } catch (const CudaError& error) {
        if (error.code == cudaErrorNoDevice || error.code == cudaErrorInsufficientDriver) {
            fmt::print(stderr, "kvcalib needs an NVIDIA GPU and its driver, and this machine has none ({})\n",
                       cudaGetErrorString(error.code));
        } else {
            fmt::print(stderr, "{}\n", error.what());
        }
        return 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
