// The committed published.yaml of every GPU: against the tables, where they are at hand, and against physics.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>

#include "sim/config/schema.hpp"
#include "sim/cost/tables/families.hpp"
#include "sim/cost/tables/fitted_operators.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

struct Published {
    const char* gpu;
    const char* tables;
};
constexpr Published kAll[] = {{"h200", "h200_sxm"}, {"h100", "h100_sxm"}, {"l40s", "l40s"}};

DeviceSpec device(const std::string& gpu) {
    YamlReader reader;
    const YamlCursor root = reader.open(KVSIM_SOURCE_DIR "/configs/devices/" + gpu + ".yaml", "device");
    DeviceSpec d = read_device(root);
    reader.finish();
    return d;
}

std::string profile(const std::string& gpu) {
    return std::string(KVSIM_SOURCE_DIR "/profiles/") + gpu;
}

TEST_CASE("devices hold what their data sheets say of dense rates", "[published]") {
    // Each halving of the format doubles the rate; A100 has no fp8, Hopper no fp4.
    CHECK(device("b200").peak_fp4.value() == 2 * device("b200").peak_fp8.value());
    CHECK(device("b200").peak_fp8.value() == 2 * device("b200").peak_bf16.value());
    CHECK(device("h100").peak_fp8.value() == Approx(2 * device("h100").peak_bf16.value()).epsilon(1e-4));
    CHECK(device("h200").peak_bf16 == device("h100").peak_bf16);  // the same chip, another memory
    CHECK(device("h200").peak_bandwidth.value() == 4.8e12);
    CHECK(device("h100").peak_bandwidth.value() == 3.35e12);
    CHECK(device("l40s").peak_bandwidth.value() == 864e9);
    CHECK(device("h200").peak_fp4.value() == 0.0);
    CHECK(device("a100").peak_fp8.value() == 0.0);
    // 108 SMs x 2048 FLOP per clock x 1410 MHz.
    CHECK(device("a100").peak_bf16.value() == Approx(108 * 2048 * 1410e6).epsilon(0.001));
    CHECK(device("a100").compute_capability == 8.0);
    for (const char* gpu : {"a100", "b200"}) {
        const FittedOperators o = load_fitted_operators(device(gpu), profile(gpu));
        CHECK(o.gemm({1, 4096, 4096}).source == Source::kRoofline);
    }
}

TEST_CASE("a form without a table moves its bytes as the published kernel does", "[published]") {
    const FittedOperators o = load_fitted_operators(device("l40s"), profile("l40s"));
    const LinearShape shape{Family::kGdn, 4, 8, 128, 128, StateFormat::kFp32};
    const LinearWork recurrent{128, 128, 0, 0, 0};
    const Estimate same = o.linear_bytes({shape, Form::kRecurrent, recurrent, 0, kColdL2});
    CHECK(same.time == o.packed_decode({shape, 128, kColdL2}).time);
    CHECK(same.source == Source::kFitted);
    // The table holds fp32 states, of no more sequences than were measured.
    LinearShape half = shape;
    half.state = StateFormat::kBf16;
    CHECK(o.linear_bytes({half, Form::kRecurrent, recurrent, 0, kColdL2}).source == Source::kExtrapolated);
    constexpr std::int64_t kMany = 1 << 16;
    CHECK(o.linear_bytes({shape, Form::kRecurrent, {kMany, kMany, 0, 0, 0}, 0, kColdL2}).source ==
          Source::kExtrapolated);
    // A flush of every row reads and writes every state, as the recurrent form does, and 15 records more.
    const LinearWork flush{128, 128, 128 * 15, 128, 128 * 16};
    const Estimate other = o.linear_bytes({shape, Form::kBuffered, flush, 16, kColdL2});
    CHECK(other.time > same.time);
    CHECK(other.source == Source::kExtrapolated);
    // 64 MiB of states and 6 MiB of rings stay in 96 MiB of L2; with rings of 512 records nothing does.
    CHECK(to_us(o.linear_bytes({shape, Form::kBuffered, flush, 16, 1}).time) < 0.25 * to_us(other.time));
    CHECK(o.linear_bytes({shape, Form::kBuffered, flush, 512, 1}).time == other.time);
    // The data sheet's roofline without a profile.
    const FittedOperators none = load_fitted_operators(device("a100"), profile("a100"));
    CHECK(none.linear_bytes({shape, Form::kBuffered, flush, 16, 1}).source == Source::kRoofline);
}

TEST_CASE("held-out groups of the published tables stay within the targets", "[published]") {
    for (const auto& [gpu, folder] : kAll) {
        const std::string tables_folder = std::string(KVSIM_SOURCE_DIR "/../shared/measurements/") + folder;
        if (!std::filesystem::exists(tables_folder)) {
            std::cerr << "SKIPPED: no tables at " << tables_folder << "\n";
            continue;
        }
        const PublishedTables tables = load_published_tables(tables_folder);
        for (const FamilyErrors& e : validate_published(tables, load_published(profile(gpu)), device(gpu))) {
            INFO(gpu << " " << e.family);
            CHECK(e.held_out.rows > 0);
            if (e.family == "gemm_bf16") CHECK(e.held_out.median < 0.08);
            if (e.family == "attention_decode") CHECK(e.held_out.median < 0.10);
            if (e.family == "moe_bf16") CHECK(e.held_out.median < 0.15);
        }
    }
}

TEST_CASE("GDN decode above 64 MB of state, held out", "[published]") {
    for (const auto& [gpu, folder] : kAll) {
        const std::string tables_folder = std::string(KVSIM_SOURCE_DIR "/../shared/measurements/") + folder;
        if (!std::filesystem::exists(tables_folder)) {
            std::cerr << "SKIPPED: no tables at " << tables_folder << "\n";
            continue;
        }
        const PublishedFit fit = load_published(profile(gpu));
        const Gpu g = gpu_of(device(gpu));
        std::vector<double> errors;
        for (const auto& row : load_published_tables(tables_folder).families.packed_decode.rows) {
            if (!held_out(row.group) || row.work.sequences * state_bytes(row.work.shape) < 64'000'000)
                continue;
            errors.push_back(std::abs(fit.families.packed_decode->law.time(row.work, g).us / row.us - 1.0));
        }
        INFO(gpu);
        REQUIRE(errors.size() > 30);
        CHECK(summarise_errors(errors).median < 0.06);
    }
}

TEST_CASE("the committed fit is the fit of the tables", "[published]") {
    for (const auto& [gpu, folder] : kAll) {
        const std::string tables_folder = std::string(KVSIM_SOURCE_DIR "/../shared/measurements/") + folder;
        if (!std::filesystem::exists(tables_folder)) {
            std::cerr << "SKIPPED: no tables at " << tables_folder << "\n";
            continue;
        }
        PublishedTables tables = load_published_tables(tables_folder);
        tables.families.gemm_bf16.rows.clear();  // minutes in a debug build
        tables.families.gemm_fp8.rows.clear();
        tables.families.moe_bf16.rows.clear();
        const PublishedFit committed = load_published(profile(gpu));
        const PublishedFit fitted = fit_published(tables, device(gpu), committed.source);
        for_each_family(
            [&](std::string_view name, const auto& now, const auto& before) {
                if (!now) return;
                INFO(gpu << " " << name << ": published.yaml is stale, run `kvsim fit-tables`");
                REQUIRE(before);
                CHECK(before->held_out.median == Approx(now->held_out.median).epsilon(0.02));
            },
            fitted.families, committed.families);
    }
}

// Grids of works far beyond the tables: a price below bytes / peak or FLOPs / peak throws.
TEST_CASE("no fitted operator is faster than its device", "[published]") {
    for (const auto& [gpu, folder] : kAll) {
        INFO(gpu);
        const FittedOperators o = load_fitted_operators(device(gpu), profile(gpu));
        int priced = 0;
        for (std::int64_t m = 1; m <= 32768; m *= 4) {
            for (std::int64_t n = 16; n <= 262144; n *= 4) {
                for (std::int64_t k = 16; k <= 65536; k *= 4) {
                    o.gemm({m, n, k});
                    o.gemm({m, n, k, MatrixFormat::kFp8});
                    priced += 2;
                }
            }
            MoeWork moe;
            moe.shape = {4096, 512, 10, 1024};
            moe.tokens = m;
            moe.distinct_experts = expected_distinct_experts(moe.shape, m);
            moe.rows = 10.0 * static_cast<double>(m);
            o.moe(moe);
            for (const int head_dim : {64, 128, 256}) {
                for (const int kv_heads : {1, 2, 8}) {
                    const AttentionShape shape{8 * kv_heads, kv_heads, head_dim};
                    o.attention_prefill({shape, 1, m, 0, m * (m + 1) / 2});
                    o.attention_prefill({shape, 1, m, 65536, m * 65536 + m * (m + 1) / 2});
                    for (std::int64_t context = 1; context <= 262144; context *= 8)
                        o.attention_decode({shape, m, m * context, context, kColdL2});
                    ++priced;
                }
            }
            for (const int heads : {1, 4, 32, 64}) {
                const LinearShape gdn{Family::kGdn, std::min(heads, 16), heads, 128, 128, StateFormat::kFp32};
                o.packed_decode({gdn, m, kColdL2});
                o.linear_prefill({gdn, 1, m, m});
                o.conv_update({conv_channels(gdn), 4, m, m, kColdL2});
                o.conv_prefill({conv_channels(gdn), 4, 1, m, kColdL2});
            }
        }
        CHECK(priced > 0);
    }
}

TEST_CASE("prices grow with the work", "[published]") {
    for (const auto& [gpu, folder] : kAll) {
        INFO(gpu);
        const FittedOperators o = load_fitted_operators(device(gpu), profile(gpu));
        const AttentionShape shape{16, 2, 256};
        Time before;
        for (std::int64_t context = 256; context <= 131072; context *= 2) {
            const Time now = o.attention_decode({shape, 32, 32 * context, context, kColdL2}).time;
            CHECK(now > before);
            before = now;
        }
        // Warm operands are never slower than cold ones.
        CHECK(o.attention_decode({shape, 1, 4096, 4096, 1}).time <=
              o.attention_decode({shape, 1, 4096, 4096}).time);
        CHECK(o.gemm({1, 2048, 2048, MatrixFormat::kBf16, 1}).time <= o.gemm({1, 2048, 2048}).time);
        const LinearShape gdn{Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
        CHECK(o.packed_decode({gdn, 8, 1}).time <= o.packed_decode({gdn, 8}).time);
    }
}

}  // namespace
}  // namespace kvsim
