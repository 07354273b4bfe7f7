#include "sim/cost/power.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/cost/compiled_cost.hpp"
#include "sim/cost/tables/families.hpp"
#include "tests/sim/cost/step_cost_support.hpp"

using namespace kvsim;
using namespace kvsim::testing;
namespace fs = std::filesystem;

namespace {

// Slices of 1 ms: 800 TFLOP/s up to `boost` ms, 600 after.
SustainedLoad load_of(int boost, bool single = true) {
    SustainedLoad load;
    load.products = {{.m = 64, .n = 128, .k = 256}, {.m = 64, .n = single ? 128 : 64, .k = 256}};
    for (int ms = 0; ms < 400; ++ms)
        load.slices.push_back({static_cast<double>(ms), 1000.0, ms < boost ? 800.0 : 600.0});
    return load;
}

std::string write_folder(const std::string& loads, const std::string& slices) {
    const fs::path folder = KVSIM_BINARY_DIR "/test_power_folder";
    fs::create_directories(folder / "sustained");
    std::ofstream(folder / "sustained/sustained_loads.csv") << "load,name,m,data,before,products\n" << loads;
    std::ofstream(folder / "sustained/sustained.csv")
        << "load,start_ms,time_us,launches,tflops,tb_per_s,sm_mhz\n"
        << slices;
    return folder.string();
}

// A law whose compute-bound products take 2 m n k / (peak x 0.8); latencies next to nothing.
PublishedFit fast_products() {
    PublishedFit fit;
    FamilyFit<GemmLaw> gemm;
    gemm.law = {.floor_us = 0.3,
                .dram_gb_per_s = 4800.0,
                .l2_over_dram = 2.0,
                .l2_share = 0.5,
                .peak_share = 0.8,
                .sm_load_gb_per_s = 1e3,
                .sm_store_gb_per_s = 1e4,
                .prologue_us = 1e-3,
                .serial = 1e-3,
                .split_us = 1.0};
    fit.families.gemm_bf16 = gemm;
    return fit;
}

StepCost cost_with(std::optional<PowerFit> power) {
    return StepCost({qwen35_4b(),
                     {},
                     plain_engine(),
                     StateFormat::kFp32,
                     FittedOperators(h200(), fast_products(), power),
                     {synthetic_fit(), false}});
}

}  // namespace

TEST_CASE("the fit of the power limit finds the step between two rates, as the median over single products") {
    const PowerFit fit = fit_power({load_of(50), load_of(70), load_of(40), load_of(90, false)}, "here");
    CHECK(fit.loads == 3);
    CHECK(fit.boost_ms == Approx(50.0));
    CHECK(fit.sustained_share == Approx(0.75));
    CHECK(fit.spread == Approx(0.0).margin(1e-9));
    CHECK_THROWS_WITH(fit_power({load_of(90, false)}, "here"),
                      ContainsSubstring("expected a load of one product"));
    SustainedLoad late = load_of(50);
    std::erase_if(late.slices, [](const SustainedLoad::Slice& s) { return s.start_ms < 30.0; });
    CHECK_THROWS_WITH(fit_power({late}, "here"), ContainsSubstring("from its first 30 ms"));
    SustainedLoad dip = load_of(50);  // slower in between than later on
    for (SustainedLoad::Slice& s : dip.slices) {
        if (s.start_ms >= 50.0 && s.start_ms < 150.0) s.tflops = 1.0;
    }
    CHECK_THROWS_WITH(fit_power({dip}, "here"), ContainsSubstring("expected rates that fall once"));
}

TEST_CASE(
    "products beyond the boost take the inverse of the share as long, those within it as long as ever") {
    const PowerFit fit{.boost_ms = 50.0, .sustained_share = 0.8};
    CHECK(fit.held_up(time_from_us(50e3)) == Time());
    CHECK(fit.held_up(time_from_us(130e3)) == time_from_us(20e3));  // 80 ms at 1 / 0.8
}

TEST_CASE("loads are read, and every mistake in them has its line") {
    const std::vector<SustainedLoad> loads = load_sustained(write_folder(
        "0,chain,64,normal,memory,12x34 56x78\n", "0,-1.5,900,2,,4.1,\n0,0.00,1000,3,700,,1500\n"));
    REQUIRE(loads.size() == 1);
    CHECK(loads[0].after_memory);
    CHECK_FALSE(loads[0].single());
    CHECK(loads[0].products[1].k == 78);
    REQUIRE(loads[0].slices.size() == 1);  // copies are none
    CHECK(loads[0].rate(0.0, 1.0) == 700.0);

    const std::string bad = write_folder("1,a,64,random,idle,12*34\n", "3,0.00,1,1,1,,1\n0,x,1,1,1,,1\n");
    for (const char* says :
         {"sustained_loads.csv:2: load: expected 0", "expected normal or zeros, got `random`",
          "expected n x k ..., got `12*34`", "sustained.csv:2: load: expected a load",
          "sustained.csv:3: start_ms: expected times that rise, got `x`"})
        CHECK_THROWS_WITH(load_sustained(bad), ContainsSubstring(says));

    const std::string none = write_folder("", "0,0.00,1,1,1,,1\n");
    CHECK_THROWS_WITH(load_sustained(none), !ContainsSubstring("sustained.csv:2"));
}

TEST_CASE("what is written of a fit is read again, and a folder without one has none") {
    const fs::path folder = KVSIM_BINARY_DIR "/test_power_fit";
    fs::create_directories(folder);
    CHECK_FALSE(load_power(KVSIM_BINARY_DIR "/absent"));
    std::ofstream(folder / "power.yaml") << to_yaml({61.5, 0.875, 0.0125, 12});
    const std::optional<PowerFit> fit = load_power(folder.string());
    REQUIRE(fit);
    CHECK(fit->boost_ms == 61.5);
    CHECK(fit->sustained_share == 0.875);
    CHECK(fit->spread == 0.0125);
    CHECK(fit->loads == 12);
    std::ofstream(folder / "power.yaml") << to_yaml({1e14, 0.875, 0.0125, 12});
    CHECK_THROWS_WITH(load_power(folder.string()), ContainsSubstring("boost_ms: expected a finite number"));
    fs::remove(folder / "power.yaml");
    fs::create_symlink("power.yaml", folder / "power.yaml");
    CHECK_THROWS_WITH(load_power(folder.string()), ContainsSubstring("cannot be read"));
    fs::remove_all(folder);
}

TEST_CASE("a long prefill is held up by its products beyond the boost, a short one and other GPUs are not") {
    const StepCost plain = cost_with({}),
                   limited = cost_with(PowerFit{.boost_ms = 20.0, .sustained_share = 0.8});
    CompiledStepCost compiled(limited);
    const StepShape shape = prefill(1, 8192);
    Time products;
    for (const OperatorCost& op : plain.explain(shape)) {
        if (op.critical && op.family == CostFamily::kGemm && op.bound == Bound::kCompute) products += op.time;
    }
    const Time boost = time_from_us(20e3);
    REQUIRE(products > boost * 2);
    const Time more = time_from_us(0.25 * to_us(products - boost));
    const StepPrice price = limited.price(shape);
    CHECK(price.time - plain.price(shape).time == more);
    CHECK(compiled.price(shape).time == price.time);
    CHECK(compiled.price(shape).time_by_source == price.time_by_source);

    Time sum;
    bool seen = false;
    for (const OperatorCost& op : limited.explain(shape)) {
        if (op.critical) sum += op.time;
        if (op.name != "power_limit") continue;
        seen = true;
        CHECK(op.time == more);
        CHECK(op.launches == 0);
        CHECK(op.source == Source::kFitted);
    }
    CHECK(seen);
    CHECK(sum == price.time);

    CHECK(limited.price(prefill(1, 1024)).time == plain.price(prefill(1, 1024)).time);
}

TEST_CASE("the H200's fit is that of its loads, and tells what layers of models do, which it never saw") {
    const std::string folder = KVSIM_SOURCE_DIR "/profiles/h200";
    const std::vector<SustainedLoad> loads = load_sustained(folder);
    const PowerFit fit = fit_power(loads, folder);
    std::stringstream committed;
    committed << std::ifstream(folder + "/power.yaml").rdbuf();
    CHECK(to_yaml(fit) == committed.str());
    int layers = 0;
    for (const SustainedLoad& load : loads) {
        if (load.single() || load.zeros) continue;
        ++layers;
        INFO(load.name << ", " << load.products.front().m << " tokens");
        CHECK(load.sustained_rate() / load.begin_rate() == Approx(fit.sustained_share).epsilon(0.015));
    }
    CHECK(layers == 8);
}
