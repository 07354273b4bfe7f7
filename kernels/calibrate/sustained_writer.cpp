#include "kernels/calibrate/sustained_writer.hpp"

#include <fmt/format.h>

#include "sim/base/check.hpp"

namespace kvsim::calibrate {
namespace {

template <class Value>
std::string cell(const std::optional<Value>& value, const char* format = "{}") {
    return value ? fmt::format(fmt::runtime(format), *value) : std::string();
}

std::string loads_text(const SustainedPlan& plan) {
    std::string text = "load,name,m,data,before,products\n";
    for (std::size_t i = 0; i < plan.loads.size(); ++i) {
        const SustainedLoad& load = plan.loads[i];
        text += fmt::format("{},{},{},{},{},", i, load.name, load.products.front().m,
                            kOperandDataNames[static_cast<std::size_t>(load.data)],
                            load.memory > Time(0) ? "memory" : "idle");
        for (std::size_t p = 0; p < load.products.size(); ++p)
            text += fmt::format("{}{}x{}", p == 0 ? "" : " ", load.products[p].n, load.products[p].k);
        text += "\n";
    }
    return text;
}

// Per second, in units of 10^12.
std::optional<double> tera_rate(std::int64_t work, double time_us) {
    if (work == 0) return std::nullopt;
    return 1e-6 * static_cast<double>(work) / time_us;
}

std::string slices_text(const SustainedPlan& plan, const SustainedMeasurement& measurement) {
    std::string text = "load,start_ms,time_us,launches,tflops,tb_per_s,sm_mhz\n";
    for (std::size_t i = 0; i < plan.loads.size(); ++i) {
        for (const SliceRow& s : measurement.loads[i].slices) {
            text +=
                fmt::format("{},{:.2f},{:.1f},{},{},{},{}\n", i, s.start_ms, s.time_us, s.launches,
                            cell(tera_rate(s.flops.value(), s.time_us), "{:.1f}"),
                            cell(tera_rate(s.bytes.value(), s.time_us), "{:.3f}"), cell(s.sm_mhz, "{:.0f}"));
        }
    }
    return text;
}

std::string clocks_text(const SustainedPlan& plan, const SustainedMeasurement& measurement) {
    std::string text = "load,at_ms,sm_mhz,memory_mhz,power_w,celsius,clock_limit,clock_reasons\n";
    for (std::size_t i = 0; i < plan.loads.size(); ++i) {
        for (const ClockRow& c : measurement.loads[i].clocks) {
            const std::string limit(
                c.clocks.limit ? kClockLimitNames[static_cast<std::size_t>(*c.clocks.limit)] : "");
            text += fmt::format("{},{:.1f},{},{},{},{},{},{}\n", i, c.at_ms, cell(c.clocks.sm_mhz),
                                cell(c.clocks.memory_mhz), cell(c.power.watts, "{:.0f}"),
                                cell(c.power.celsius), limit, cell(c.power.clock_reasons, "{:#x}"));
        }
    }
    return text;
}

std::string bursts_text(const SustainedMeasurement& measurement) {
    std::string text = "m,n,k,call,time_us,tflops,sm_mhz\n";
    for (const BurstRow& b : measurement.bursts) {
        text += fmt::format("{},{},{},{},{:.3f},{},{}\n", b.product.m, b.product.n, b.product.k, b.call,
                            b.time_us, cell(tera_rate(b.product.flops().value(), b.time_us), "{:.2f}"),
                            cell(b.sm_mhz, "{:.1f}"));
    }
    return text;
}

std::string manifest_text(const SustainedMeasurement& measurement, const DeviceInfo& device,
                          const Provenance& provenance) {
    nlohmann::ordered_json manifest;
    manifest["schema"] = "kvsim/sustained/1";
    manifest["gpu"] = gpu_json(device);
    manifest["power_limit_w"] = measurement.power_limit_watts
                                    ? nlohmann::ordered_json(*measurement.power_limit_watts)
                                    : nlohmann::ordered_json(nullptr);
    manifest["method"] =
        "bf16 products with fp32 sums by cuBLASLt, first algorithm of its heuristic with 32 MB of workspace, "
        "compared at 64 places each with sums on the CPU before anything is timed. Activations N(0, 1), "
        "weights "
        "N(0, 1/k), or zeros. Slices: CUDA events around the work between two readings of every "
        "multiprocessor's clock (cycles over nanoseconds: sm_mhz is the mean over the slice, median of the "
        "multiprocessors). Clocks: NVML on a thread of its own. Times from the first product on. Bursts: one "
        "call after a pause, 4 x L2 of other memory written just before it.";
    manifest["date"] = provenance.date;
    manifest["revision"] = provenance.revision;
    manifest["grid"] = provenance.grid.generic_string();
    manifest["grid_fingerprint"] = fingerprint(provenance.grid_text);
    manifest["driver"] = device.driver;
    manifest["cuda_driver"] = device.cuda_driver;
    manifest["cuda_runtime"] = device.cuda_runtime;
    manifest["cublaslt"] = measurement.cublaslt;
    return manifest.dump(2) + "\n";
}

}  // namespace

void write_sustained(const std::filesystem::path& folder, const SustainedPlan& plan,
                     const SustainedMeasurement& measurement, const DeviceInfo& device,
                     const Provenance& provenance) {
    KVSIM_CHECK(measurement.loads.size() == plan.loads.size(), "{} of {} loads", measurement.loads.size(),
                plan.loads.size());
    replace_files(folder, {{"sustained_loads.csv", loads_text(plan)},
                           {"sustained.csv", slices_text(plan, measurement)},
                           {"sustained_clocks.csv", clocks_text(plan, measurement)},
                           {"sustained_bursts.csv", bursts_text(measurement)},
                           {"sustained_manifest.json", manifest_text(measurement, device, provenance)}});
}

}  // namespace kvsim::calibrate
