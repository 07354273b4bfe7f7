// Fits of tables whose law is known, and their file.
#include <filesystem>
#include <fstream>

#include "sim/cost/tables/families.hpp"
#include "tests/sim/cost/tables/gpus.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

const TableSource kSource{"someone", "abc", "MIT"};

ConvUpdateLaw known_law() {
    ConvUpdateLaw law;
    law.floor_us = 2.0;
    law.latency_us = 1.0;
    law.dram_gb_per_s = 800.0;
    law.l2_over_dram = 4.0;
    law.l2_share = 0.9;  // 9 MB: all working sets, powers of two, fit well or not at all
    law.serial = 0.2;
    return law;
}

// Exact times of the known law over channels and batches; those of odd groups times `odd`.
PublishedTables tables_of_known_law(double odd = 1.0) {
    PublishedTables tables;
    tables.folder = "known";
    tables.families.conv_update.kernel = "kernel";
    const Gpu gpu = gpu_of(round_device(9.0));
    int group = 0;
    for (const std::int64_t channels : {1024, 2048, 4096, 8192}) {
        for (const std::int64_t batch : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
            const ConvWork work{channels, 4, batch, batch, 1};
            const double us = known_law().time(work, gpu).us * (held_out(group) ? odd : 1.0);
            tables.families.conv_update.rows.push_back({work, us, group, {}});
        }
        ++group;
    }
    return tables;
}

TEST_CASE("a fit finds the law that made its rows") {
    const PublishedFit fit = fit_published(tables_of_known_law(), round_device(9.0), kSource);
    REQUIRE(fit.families.conv_update);
    const FamilyFit<ConvUpdateLaw>& conv = *fit.families.conv_update;
    CHECK(conv.law.dram_gb_per_s == Approx(800.0).epsilon(0.01));
    CHECK(conv.law.l2_over_dram == Approx(4.0).epsilon(0.02));
    CHECK(conv.law.floor_us + conv.law.latency_us == Approx(3.0).epsilon(0.02));
    CHECK(conv.held_out.rows == 24);
    CHECK(conv.held_out.worst < 0.02);
    CHECK(conv.range[0].min == 16.0 * 1024);
    CHECK(conv.range[0].max == 16.0 * 8192 * 2048);
    CHECK_FALSE(fit.families.gemm_bf16);
    CHECK(fit.device == "round");
}

TEST_CASE("held-out groups judge a fit and do not enter it") {
    const DeviceSpec device = round_device(9.0);
    const PublishedFit honest = fit_published(tables_of_known_law(), device, kSource);
    const PublishedTables twice = tables_of_known_law(2.0);
    const PublishedFit fit = fit_published(twice, device, kSource);
    CHECK(fit.families.conv_update->law.dram_gb_per_s == honest.families.conv_update->law.dram_gb_per_s);
    CHECK(fit.families.conv_update->fitted.worst < 0.02);
    CHECK(fit.families.conv_update->held_out.median ==
          Approx(0.5).margin(0.02));  // predicted / measured - 1 = -1/2
    CHECK(fit.families.conv_update->sigma[0] == Approx(0.5).margin(0.02));

    const std::vector<FamilyErrors> errors = validate_published(twice, honest, device);
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].family == "conv_update");
    CHECK(errors[0].rows.size() == 48);
    CHECK(errors[0].held_out.median == Approx(0.5).margin(0.02));
}

TEST_CASE("too few rows, or none to judge by, are refused") {
    PublishedTables tables = tables_of_known_law();
    auto& rows = tables.families.conv_update.rows;
    rows.resize(12);  // the first group alone
    CHECK_THROWS_WITH(
        fit_published(tables, round_device(9.0), kSource),
        ContainsSubstring("conv_update: expected at least 6 rows in even groups and some in odd ones, "
                          "got 12 and 0"));
    rows.erase(rows.begin(), rows.begin() + 9);
    rows.push_back(rows.back());
    rows.back().group = 1;
    CHECK_THROWS_WITH(fit_published(tables, round_device(9.0), kSource), ContainsSubstring("got 3 and 1"));
}

TEST_CASE("published.yaml reads back as it was written, and says where it comes from") {
    TableSource source = kSource;
    source.name = "Tables: \"of\" {others}\n# \\ not a comment";
    const PublishedFit fit = fit_published(tables_of_known_law(), round_device(9.0), source);
    const std::string file = KVSIM_BINARY_DIR "/published_round_trip.yaml";
    std::ofstream(file) << to_yaml(fit);
    const PublishedFit back = load_published(file);
    CHECK(to_yaml(back) == to_yaml(fit));
    CHECK(back.source.name == source.name);
    CHECK(back.source.commit == "abc");
    CHECK(back.families.conv_update->law.serial == fit.families.conv_update->law.serial);
    CHECK(back.families.conv_update->range[1].max == 2048.0);
    CHECK_FALSE(back.families.all_reduce);

    std::string text = to_yaml(fit);
    text.replace(text.find("serial:"), 7, "cereal:");
    std::ofstream(file) << text;
    CHECK_THROWS_WITH(load_published(file), ContainsSubstring("cereal"));
    std::filesystem::remove(file);
}

TEST_CASE("a table without its family in the fit is told") {
    PublishedFit fit = fit_published(tables_of_known_law(), round_device(9.0), kSource);
    fit.families.conv_update.reset();
    CHECK_THROWS_WITH(validate_published(tables_of_known_law(), fit, round_device(9.0)),
                      ContainsSubstring("has no conv_update, of which known holds a table"));
}

}  // namespace
}  // namespace kvsim
