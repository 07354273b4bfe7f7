#include "kernels/calibrate/sustained_writer.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::calibrate;
namespace fs = std::filesystem;

namespace {

// 2 x 1000 x 1000 x 1000 = 2e9 FLOPs.
constexpr Product kProduct{1000, 1000, 1000};

SustainedPlan one_load() {
    SustainedPlan plan;
    plan.loads.push_back(
        {"chain", {kProduct}, OperandData::kZeros, time_from_us(1e5), time_from_us(1e5), {}});
    return plan;
}

SustainedMeasurement measured() {
    SustainedMeasurement m;
    LoadRun run;
    SliceRow copies;
    copies.phase = LoadPhase::kMemory;
    copies.start_ms = -1.0;
    copies.time_us = 1000.0;
    copies.launches = 2;
    copies.bytes = Bytes(4'000'000'000);  // in 1 ms: 4 TB/s
    SliceRow products;
    products.time_us = 4.0;
    products.launches = 1;
    products.flops = kProduct.flops();  // in 4 us: 500 TFLOP/s
    products.sm_mhz = 1700.0;
    run.slices = {copies, products};
    ClockRow silent;  // a driver that says nothing
    silent.at_ms = -200.5;
    ClockRow limited;
    limited.at_ms = 5.25;
    limited.clocks = {1695, 3201, ClockLimit::kPower};
    limited.power = {699.5, 1234.5, 61, 0x4};
    run.clocks = {silent, limited};
    m.loads = {run};
    m.bursts = {{kProduct, 3, 2.5, 1980.0}};  // 800 TFLOP/s
    m.power_limit_watts = 700.0;
    m.cublaslt = "130000";
    return m;
}

}  // namespace

TEST_CASE("slices, clocks and bursts are lines of their own files, and rates follow from their work") {
    const fs::path folder = KVSIM_BINARY_DIR "/test_sustained_writer_folder";
    fs::remove_all(folder);
    fs::create_directories(folder);
    replace_files(folder, {{"manifest.json", "{}"}});  // of a profile
    DeviceInfo device;
    device.name = "GPU A";
    write_sustained(folder, one_load(), measured(), device,
                    {"grid.yaml", "grid", "abc", "2026-01-02T03:04:05Z"});

    CHECK(read_text(folder / "sustained_loads.csv") ==
          "load,name,m,data,before,products\n"
          "0,chain,1000,zeros,memory,1000x1000\n");
    CHECK(read_text(folder / "sustained.csv") ==
          "load,start_ms,time_us,launches,tflops,tb_per_s,sm_mhz\n"
          "0,-1.00,1000.0,2,,4.000,\n"
          "0,0.00,4.0,1,500.0,,1700\n");
    CHECK(read_text(folder / "sustained_clocks.csv") ==
          "load,at_ms,sm_mhz,memory_mhz,power_w,celsius,clock_limit,clock_reasons\n"
          "0,-200.5,,,,,,\n"
          "0,5.2,1695,3201,700,61,power,0x4\n");
    CHECK(read_text(folder / "sustained_bursts.csv") ==
          "m,n,k,call,time_us,tflops,sm_mhz\n"
          "1000,1000,1000,3,2.500,800.00,1980.0\n");
    const auto manifest = nlohmann::json::parse(read_text(folder / "sustained_manifest.json"));
    CHECK(manifest["gpu"]["name"] == "GPU A");
    CHECK(manifest["power_limit_w"] == 700.0);
    CHECK(manifest["cublaslt"] == "130000");
    CHECK(manifest["revision"] == "abc");
    CHECK(read_text(folder / "manifest.json") == "{}");
}
