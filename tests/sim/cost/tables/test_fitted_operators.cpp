// Prices of operators: source, uncertainty, and the physics that no fit may break.
#include "sim/cost/tables/fitted_operators.hpp"

#include "sim/cost/tables/families.hpp"
#include "tests/sim/cost/tables/gpus.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

PublishedFit fit_of(double dram_gb_per_s) {
    PublishedFit fit;
    fit.origin = "somewhere";
    fit.device = "round";
    FamilyFit<ConvUpdateLaw> conv;
    conv.law.floor_us = 2.0;
    conv.law.latency_us = 0.1;
    conv.law.dram_gb_per_s = dram_gb_per_s;
    conv.law.l2_over_dram = 5.0;
    conv.law.l2_share = 1.0;
    conv.range = {ValidRange{0.0, 1e8}, ValidRange{1.0, 256.0}};
    conv.sigma = {0.01, 0.02, 0.03};
    fit.families.conv_update = conv;
    return fit;
}

TEST_CASE("inside its table an estimate is fitted, outside extrapolated, and both carry the fit's error") {
    const FittedOperators operators(round_device(9.0), fit_of(800.0));
    // 16 x 1000 x 100 bytes at 800 GB/s: 2 us, as long as the floor and shorter than it with the latency.
    const Estimate small = operators.conv_update({1000, 4, 100, 100, kColdL2});
    CHECK(small.source == Source::kFitted);
    CHECK(small.regime == Regime::kLatency);
    CHECK(small.uncertainty == 0.01);
    CHECK(to_us(small.time) == Approx(4.0));
    const Estimate large = operators.conv_update({1000, 4, 200, 200, kColdL2});
    CHECK(large.regime == Regime::kMemory);
    CHECK(large.uncertainty == 0.02);
    CHECK(operators.conv_update({1000, 4, 257, 257, kColdL2}).source == Source::kExtrapolated);
}

TEST_CASE("a family without a fit is a roofline of the data sheet and says so") {
    const FittedOperators operators(round_device(9.0), fit_of(800.0));
    const FittedOperators sheet{round_device(9.0)};
    for (const FittedOperators* o : {&operators, &sheet}) {
        const Estimate gemm = o->gemm({1, 4096, 4096});
        CHECK(gemm.source == Source::kRoofline);
        CHECK(gemm.uncertainty == kRooflineUncertainty);
        CHECK(gemm.regime == Regime::kMemory);
        // Never faster than the weights at peak bandwidth, nor than the FLOPs at the peak rate.
        CHECK(to_us(gemm.time) > 2.0 * 4096 * 4096 / 1e6);
        CHECK(o->gemm({8192, 8192, 8192}).regime == Regime::kCompute);
        CHECK(to_us(o->gemm({8192, 8192, 8192}).time) > 2.0 * 8192 * 8192 * 8192 / 1e9);
        // fp8 halves bytes and doubles the rate.
        CHECK(o->gemm({8192, 8192, 8192, MatrixFormat::kFp8}).time < o->gemm({8192, 8192, 8192}).time);
    }
    // Of fp4 too where the tensor cores have it; else the arithmetic is that of bf16: 2 m^3 FLOP at 70 % of 1
    // PFLOP/s after a launch of 2 us.
    const GemmWork fp4{8192, 8192, 8192, MatrixFormat::kFp4};
    const double bf16_us = 2.0 * 8192 * 8192 * 8192 / 0.7e9;
    CHECK(to_us(sheet.gemm(fp4).time) == Approx(2.0 + bf16_us));
    DeviceSpec blackwell = round_device(10.0);
    blackwell.peak_fp4 = FlopRate(4e15);
    CHECK(to_us(FittedOperators(blackwell).gemm(fp4).time) == Approx(2.0 + bf16_us / 4));
    CHECK(sheet.conv_update({1000, 4, 100, 100, kColdL2}).source == Source::kRoofline);
    CHECK(to_us(sheet.conv_update({1000, 4, 100, 100, kColdL2}).time) > 1.6);
}

TEST_CASE("every operator of a device without a fit has a price") {
    const FittedOperators sheet{round_device(8.0)};
    const LinearShape gdn{Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
    const AttentionShape attention{16, 2, 256};
    MoeWork moe;
    moe.shape = {2048, 256, 8, 512};
    moe.tokens = 4;
    moe.distinct_experts = 30.0;
    moe.rows = 32.0;
    // Weights alone at peak bandwidth: 30 experts x 6.3 MB / 1 TB/s.
    CHECK(to_us(sheet.moe(moe).time) > 30 * 3.0 * 2048 * 512 * 2 / 1e6);
    CHECK(to_us(sheet.attention_decode({attention, 8, 8 * 4096, 4096, kColdL2}).time) >
          8 * 4096 * 2048.0 / 1e6);
    CHECK(to_us(sheet.attention_prefill({attention, 1, 8192, 0, 8192LL * 8193 / 2}).time) >
          4.0 * 16 * 256 * 8192 * 8193 / 2 / 1e9);
    CHECK(to_us(sheet.packed_decode({gdn, 64, kColdL2}).time) > 64 * 4.19);
    CHECK(to_us(sheet.linear_prefill({gdn, 1, 8192, 8192}).time) > 0.0);
    CHECK(to_us(sheet.conv_prefill({8192, 4, 1, 8192, kColdL2}).time) > 4.0 * 8192 * 8192 / 1e6);
    // 1 MB over four ranks: 1.5 MB over the 100 GB/s link of a rank take 15 us.
    CHECK(to_us(sheet.all_reduce(Bytes(1'000'000), 4).time) > 15.0);
    CHECK(sheet.all_reduce(Bytes(1'000'000), 1).time == Time{});
    // One way over the link at 85 %, and two launches' worth of latency.
    CHECK(to_us(sheet.all_to_all(Bytes(1'000'000), 8).time) == Approx(10.0 / 0.85 + 4.0));
    CHECK(sheet.all_to_all(Bytes(1), 8).source == Source::kRoofline);
    CHECK(to_us(sheet.elementwise(Bytes(1'000'000)).time) > 1.0);
    CHECK(sheet.elementwise(Bytes(1'000'000)).source == Source::kRoofline);
}

TEST_CASE("a fit that claims more than the device's peak is refused") {
    CHECK_THROWS_WITH(
        FittedOperators(round_device(9.0), fit_of(1200.0)),
        ContainsSubstring("conv_update.dram_gb_per_s: 1200 GB/s is more than the peak of round, 1000 GB/s"));
    // The same rate hidden in another family's parameters shows in a price: all-reduce has no such bound, a
    // chunk kernel has FLOPs.
    PublishedFit fit = fit_of(800.0);
    FamilyFit<FusedChunkLaw> chunk;
    chunk.law = {0.1, 0.1, 0.01};
    fit.families.fused_chunk = chunk;
    const FittedOperators operators(round_device(9.0), fit);
    const LinearShape gdn{Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
    CHECK_THROWS_WITH(
        operators.linear_prefill({gdn, 16, 16 * 8192, 8192}),
        ContainsSubstring("fused_chunk: ") && ContainsSubstring("needs for the work at its peak rates"));
}

TEST_CASE("a fit of another device is refused") {
    CHECK_THROWS_WITH(load_fitted_operators(round_device(9.0), KVSIM_SOURCE_DIR "/profiles/h200"),
                      ContainsSubstring("device: expected round, got h200"));
    // A folder without published.yaml is the roofline.
    const FittedOperators none =
        load_fitted_operators(round_device(9.0), KVSIM_SOURCE_DIR "/profiles/absent");
    CHECK(none.gemm({1, 64, 64}).source == Source::kRoofline);
}

}  // namespace
}  // namespace kvsim
