// Laws of published kernels against times worked out by hand, with parameters that leave one term at a time.
#include "sim/cost/tables/attention_law.hpp"
#include "sim/cost/tables/gemm_law.hpp"
#include "sim/cost/tables/moe_law.hpp"
#include "sim/cost/tables/routing.hpp"
#include "sim/cost/tables/stream_laws.hpp"
#include "tests/sim/cost/tables/gpus.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr double kFast = 1e12;  // GB/s: a transfer that takes no time
const Gpu kWide = gpu_of(round_device(9.0));
const Gpu kNarrow = gpu_of(round_device(8.9));

TEST_CASE("what fits into the cache stays, and a quarter more is gone") {
    CHECK(resident_share(10.0, 10.0) == 1.0);
    CHECK(resident_share(11.25, 10.0) == Approx(0.5));
    CHECK(resident_share(12.5, 10.0) == 0.0);
    // Six sets of 1 MB and 1 MB beside them fit 7 MB; a cold L2 holds nothing however small.
    CHECK(resident_share(6, 1e6, 1e6, 7e6) == 1.0);
    CHECK(resident_share(6, 1e6, 1e6, 5.6e6) == 0.0);
    CHECK(resident_share(kColdL2, 1.0, 0.0, 1e9) == 0.0);
}

GemmLaw compute_bound_gemm() {
    GemmLaw law;
    law.floor_us = 2.0;
    law.dram_gb_per_s = law.sm_load_gb_per_s = law.sm_store_gb_per_s = kFast;
    law.l2_over_dram = 1.0;
    law.l2_share = 1.0;
    law.peak_share = 0.5;
    law.split_us = 100.0;  // never worth it
    return law;
}

TEST_CASE("a product takes whole waves of tiles") {
    const GemmLaw law = compute_bound_gemm();
    // 1280 x 1280 outputs are 100 tiles of 128 x 128: one wave. 2 x 128 x 128 x 64 FLOP per step at 5
    // MFLOP/us are 0.4194304 us, 16 steps of K = 1024.
    const double wave = 16 * 2.0 * 128 * 128 * 64 / 5e6;
    CHECK(law.time({1280, 1280, 1024}, kWide).us == Approx(2.0 + wave));
    CHECK(law.time({1280, 1280, 1024}, kWide).regime == Regime::kCompute);
    // Full waves of the largest tile: 2560 x 2560 = 200 tiles of 256 x 128, two waves.
    CHECK(law.time({2560, 2560, 1024}, kWide).us == Approx(2.0 + 2 * 2 * wave));
    // One row more starts another wave of something; a row less does not end one.
    CHECK(law.time({2561, 2560, 1024}, kWide).us > law.time({2560, 2560, 1024}, kWide).us * 1.05);
    CHECK(law.time({2559, 2560, 1024}, kWide).us == Approx(law.time({2560, 2560, 1024}, kWide).us));
}

TEST_CASE("a product of one row is bound by its weights, which may be in the L2") {
    GemmLaw law = compute_bound_gemm();
    law.dram_gb_per_s = 500.0;
    law.l2_over_dram = 10.0;
    // 2 MB of weights at 500 GB/s: 4 us; in the L2: 0.4 us; activations of 4 KB are there in both.
    const double activations = 4096.0 / 5e6;
    const double tiles =
        16 * 2.0 * 64 * 64 * 64 / 5e6;  // 1024 columns: 16 tiles of 64 x 64, one wave, 16 steps
    const double cold = soft_max(tiles, 1024.0 * 1024 * 2 / 500e3 + activations, 0.0);
    CHECK(law.time({1, 1024, 1024}, kWide).us == Approx(2.0 + cold));
    CHECK(law.time({1, 1024, 1024}, kWide).regime == Regime::kMemory);
    GemmWork warm{1, 1024, 1024, MatrixFormat::kBf16, 1};
    CHECK(law.time(warm, kWide).us == Approx(2.0 + std::max(tiles, 1024.0 * 1024 * 2 / 5e6 + activations)));
    warm.rotation = 6;  // 12.6 MB do not fit 10 MB
    CHECK(law.time(warm, kWide).us == Approx(2.0 + cold));
}

TEST_CASE("K is split when SMs would idle and the reduction costs less") {
    GemmLaw law = compute_bound_gemm();
    law.split_us = 1.0;
    // 64 x 64 outputs, K = 65536: one tile of 1024 steps, or 32 blocks of 32 steps and the reduction.
    const double step = 2.0 * 64 * 64 * 64 / 5e6;
    CHECK(law.time({64, 64, 65536}, kWide).us == Approx(2.0 + 1.0 + 32 * step));
    // CUTLASS's fp8 product does not, at twice the rate; its activations are read and written once before.
    CHECK(law.time({64, 64, 65536, MatrixFormat::kFp8}, kWide).us == Approx(2.0 + 1024 * step / 2));
    CHECK(law.time({64, 64, 65536}, kNarrow).us < 2.0 + 1.0 + 32 * step);  // half the tile there
}

TEST_CASE("outputs leave an SM before its next tile, and long products slow down at the power limit") {
    GemmLaw law = compute_bound_gemm();
    const double wave = 16 * 2.0 * 128 * 128 * 64 / 5e6;  // as above: 1280 x 1280 x 1024 is one
    law.sm_store_gb_per_s = 10.0;
    CHECK(law.time({1280, 1280, 1024}, kWide).us == Approx(2.0 + wave + 128 * 128 * 2 / 10e3));
    law.sm_store_gb_per_s = kFast;
    law.sustained_share = 0.8;
    law.throttle_us = wave;  // as long as the limit: half of the loss of a quarter
    CHECK(law.time({1280, 1280, 1024}, kWide).us == Approx(2.0 + wave * 1.125));
}

AttentionDecodeLaw decode_law() {
    AttentionDecodeLaw law;
    law.floor_us = 5.0;
    law.block_us = 1.0;
    law.tile_us = 3.0;
    law.kernel_us = 2.0;
    law.dram_gb_per_s = kFast;
    law.l2_over_dram = 1.0;
    law.l2_share = 1.0;
    return law;
}

TEST_CASE("attention over a long context splits it over idle SMs") {
    const AttentionDecodeLaw law = decode_law();
    // 10 tiles on 100 SMs: 10 splits; 40 blocks of 128 keys leave 4 to each; a combine of 2 us.
    const AttentionShape shape{8, 1, 128};
    CHECK(law.time({shape, 10, 10 * 5120, 5120, kColdL2}, kWide).us == Approx(5.0 + 2.0 + 4.0));
    // 100 tiles fill the SMs: no split, no combine, all blocks in turn.
    CHECK(law.time({shape, 100, 100 * 5120, 5120, kColdL2}, kWide).us == Approx(5.0 + 40.0));
    // 200 tiles: two waves, the second starts anew. A head twice as wide takes twice the time.
    CHECK(law.time({shape, 200, 200 * 5120, 5120, kColdL2}, kWide).us == Approx(5.0 + 3.0 + 80.0));
    CHECK(law.time({{8, 1, 256}, 200, 200 * 5120, 5120, kColdL2}, kWide).us == Approx(5.0 + 6.0 + 160.0));
    // Generation 2 leaves a group of one unsplit, and copies groups of several.
    CHECK(law.time({{1, 1, 128}, 10, 10 * 5120, 5120, kColdL2}, kNarrow).us == Approx(5.0 + 40.0));
    CHECK(law.time({{16, 2, 128}, 5, 5 * 5120, 5120, kColdL2}, kNarrow).us == Approx(5.0 + 2.0 + 2.0 + 4.0));
}

TEST_CASE("one long sequence among short ones sets the end of attention") {
    const AttentionDecodeLaw law = decode_law();
    const AttentionShape shape{8, 1, 128};
    const double even = law.time({shape, 100, 100 * 1280, 1280, kColdL2}, kWide).us;
    CHECK(even == Approx(5.0 + 10.0));
    CHECK(law.time({shape, 100, 100 * 1280, 12800, kColdL2}, kWide).us == Approx(5.0 + 100.0));
}

TEST_CASE("attention over a prompt: products, softmax and the diagonal") {
    AttentionPrefillLaw law;
    law.floor_us = 5.0;
    law.peak_share = 0.5;
    law.softmax_ns = 20.0;
    law.lone_block_us = law.lone_width_us = 0.0;
    law.gb_per_s = kFast;
    // 1,000 sequences of 64 tokens, one head of 128: 1,000 tiles, each 32.5 mean keys + 64 of 128, 0.7539
    // blocks of 8,192 pairs: 512 FLOP at 5 MFLOP/us and 20 ns per 1,000.
    const double block = 8192 * (512 / 5e6 + 20e-6);
    const AttentionPrefillWork work{{1, 1, 128}, 1000, 64'000, 0, 1000LL * 64 * 65 / 2};
    CHECK(law.time(work, kWide).us == Approx(5.0 + 1000 * (32.5 + 64) / 128 * block / 100));
    // Cached keys are walked by every tile.
    AttentionPrefillWork later = work;
    later.cached_tokens = 1000 * 1280;
    later.query_key_pairs += 64'000LL * 1280;
    CHECK(law.time(later, kWide).us == Approx(5.0 + 1000 * (1280 + 32.5 + 64) / 128 * block / 100));
}

MoeLaw memory_bound_moe() {
    MoeLaw law;
    law.floor_us = 10.0;
    law.dram_gb_per_s = 1000.0;
    law.activation_gb_per_s = law.sm_load_gb_per_s = kFast;
    law.l2_share = 1.0;
    law.peak_share = 1.0;
    return law;
}

TEST_CASE("experts cost the weights of those that are touched") {
    MoeLaw law = memory_bound_moe();
    MoeWork work;
    work.shape = {1024, 64, 4, 512};
    work.tokens = 1;
    work.distinct_experts = 4;
    work.rows = 4;
    // 4 experts x 3 matrices x 1024 x 512 x 2 bytes at 1 TB/s: 12.582912 us.
    CHECK(law.time(work, kWide).us == Approx(10.0 + 12.582912));
    CHECK(law.time(work, kWide).regime == Regime::kMemory);
    work.gated = false;
    CHECK(law.time(work, kWide).us == Approx(10.0 + 12.582912 * 2 / 3));
    // A sort is due as pairs reach experts; ranks beside this one cost their look-up.
    law.align_us = 8.0;
    law.remote_us = 3.0;
    CHECK(law.time(work, kWide).us == Approx(10.0 + 8.0 / 16 + 12.582912 * 2 / 3));
    work.rows = 2;
    CHECK(law.time(work, kWide).us == Approx(10.0 + 8.0 / 16 + 3.0 + 12.582912 * 2 / 3));
}

TEST_CASE("routing by chance wastes half a tile per expert") {
    MoeLaw law = memory_bound_moe();
    law.dram_gb_per_s = kFast;
    MoeWork work;
    work.shape = {1024, 64, 8, 1024};
    work.tokens = 1024;
    work.distinct_experts = 64;
    work.rows = 8192;  // 128 per expert
    work.even = true;
    const double even = law.time(work, kWide).us;
    work.even = false;
    CHECK(law.time(work, kWide).us > even);
}

TEST_CASE("experts touched under a power law") {
    const MoeShape shape{2048, 256, 8, 512};
    // alpha = 0 spreads popularity evenly over [1, E]; no expert is certain, so that one token draws k on
    // average.
    CHECK(expected_distinct_experts(shape, 1, 0.0) == Approx(8.0));
    CHECK(expected_distinct_experts(shape, 1'000'000, 1.2) == Approx(256.0));
    // Skewed popularity touches fewer than uniform routing: E (1 - (1 - k/E)^32) = 163.
    CHECK(expected_distinct_experts(shape, 32) == Approx(163.3).margin(0.1));
    const double mild = expected_distinct_experts(shape, 32, 0.5);
    const double strong = expected_distinct_experts(shape, 32, 1.2);
    CHECK(mild < expected_distinct_experts(shape, 32));
    CHECK(strong < mild);
    CHECK(strong > 8.0);
    // Two experts at quantiles 1/4 and 3/4 of a uniform density on [1, 2], one drawn: 1.25/3 and 1.75/3.
    const double p = 1.25 / 3;
    CHECK(expected_distinct_experts({16, 2, 1, 16}, 2, 0.0) == Approx(2 - (1 - p) * (1 - p) - p * p));
}

TEST_CASE("routing of the tables") {
    const MoeShape layer{2048, 256, 8, 512};
    CHECK(balanced_routing(layer, 4, 1).distinct_experts == 32.0);
    CHECK(balanced_routing(layer, 32, 1).distinct_experts == 256.0);
    CHECK(balanced_routing(layer, 32, 8).distinct_experts == 32.0);
    CHECK(balanced_routing(layer, 32, 8).rows == 32.0);
    for (const std::int64_t tokens : {1, 16, 40, 1000}) {
        const RankRouting all = power_law_routing(layer, tokens, 1, 1.2);
        CHECK(all.rows == Approx(8.0 * static_cast<double>(tokens)));  // every pair is somewhere
        CHECK(all.distinct_experts >= 8.0);
        CHECK(all.distinct_experts <= std::min(256.0, 8.0 * static_cast<double>(tokens)));
        // The busiest of eight ranks has more than its share, and no more than everything.
        const RankRouting busiest = power_law_routing(layer, tokens, 8, 1.2);
        CHECK(busiest.rows >= all.rows / 8);
        CHECK(busiest.rows <= all.rows);
        CHECK(busiest.distinct_experts <= 32.0);
    }
}

TEST_CASE("decode kernels of linear layers move states; records of one launch stay in the L2 for the next") {
    PackedDecodeLaw law;
    law.floor_us = 4.0;
    law.dram_gb_per_s = 1000.0;
    law.l2_over_dram = 4.0;
    law.l2_share = 1.0;
    const LinearShape shape{Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
    // 2 MiB of state per row, read and written; inputs and output are below 1 % of that.
    const double row_us = 2.0 * 32 * 128 * 128 * 4 / 1e6;
    CHECK(law.time({shape, 1, kColdL2}, kWide).us == Approx(4.0 + row_us).epsilon(0.01));
    CHECK(law.time({shape, 64, kColdL2}, kWide).us == Approx(4.0 + 64 * row_us).epsilon(0.01));
    CHECK(law.time({shape, 4, 1}, kWide).us == Approx(4.0 + row_us).epsilon(0.01));  // 8.4 MB fit 10 MB
    CHECK(law.time({shape, 8, 1}, kWide).us == law.time({shape, 8, kColdL2}, kWide).us);
}

TEST_CASE("FlashInfer's chunk kernel goes in waves of sequence and head, serial over chunks") {
    const FusedChunkLaw law{1.0, 8.0, 3.0};
    const LinearShape shape{Family::kGdn, 16, 50, 128, 128, StateFormat::kFp32};
    CHECK(law.time({shape, 1, 64, 64}, kWide).us == Approx(1.0 + 8.0 + 3.0));
    CHECK(law.time({shape, 1, 65, 65}, kWide).us == Approx(1.0 + 8.0 + 6.0));
    CHECK(law.time({shape, 2, 2048, 1024}, kWide).us == Approx(1.0 + 8.0 + 16 * 3.0));    // 100 blocks
    CHECK(law.time({shape, 3, 3072, 1024}, kWide).us == Approx(1.0 + 2 * (8.0 + 48.0)));  // 150 blocks
}

TEST_CASE("all-reduce takes the better of one step and two") {
    const AllReduceLaw law{4.0, 0.5, 100.0, 3.0, 100.0};
    // 8 ranks, 100 KB: one step moves 700 KB in 7 us; two move 175 KB in 1.75 us after 3 us.
    CHECK(law.time({1e5, 8}, kWide).us == Approx(4.0 + 4.0 + 4.75));
    CHECK(law.time({1e4, 8}, kWide).us == Approx(4.0 + 4.0 + 0.7));
    CHECK(law.time({1e5, 2}, kWide).us == Approx(4.0 + 1.0 + 1.0));
}

}  // namespace
}  // namespace kvsim
