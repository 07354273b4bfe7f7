// The committed profile of the H200: read, fitted, judged on rows that the fit never saw.
#include "sim/cost/validate.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;

namespace {

const char* const kFolder = KVSIM_SOURCE_DIR "/profiles/h200";

}  // namespace

TEST_CASE("held-out rows of the H200: median below 3 %, P90 below 8 %", "[h200]") {
    const Profile profile = load_profile(kFolder);
    const ProfileFit fit = fit_profile(profile);
    int linear_kernels = 0;
    for (const ValidationRow& v : validate(profile, fit)) {
        if (v.layer.empty()) continue;
        INFO(v.kernel);
        ++linear_kernels;
        CHECK(v.held_out.rows > 0);
        CHECK(v.held_out.median < 0.03);
        CHECK(v.held_out.p90 < 0.08);
    }
    CHECK(linear_kernels == 2);
}

TEST_CASE("the committed fit is the fit of the committed rows", "[h200]") {
    const Profile profile = load_profile(kFolder);
    const ProfileFit fitted = fit_profile(profile);
    const ProfileFit committed = load_fit(kFolder);
    CHECK(to_us(committed.empty_node) == Approx(to_us(fitted.empty_node)).epsilon(1e-3));
    CHECK(committed.copy.law.gb_per_s == Approx(fitted.copy.law.gb_per_s).epsilon(1e-3));
    for (const MeasuredRow& m : profile.rows) {
        if (!is_linear(m.row)) continue;
        const LinearLaunch launch = launch_of(m.row);
        const TimedSource from_file = committed.linear_time(launch);
        if (to_us(from_file.time) != Approx(to_us(fitted.linear_time(launch).time)).epsilon(1e-3)) {
            FAIL(m.place.file << ":" << m.place.line << ": fit.yaml is stale, run `kvsim fit profiles/h200`");
        }
    }
}

TEST_CASE("counted DRAM bytes are those of the traffic formulas", "[h200]") {
    int compared = 0;
    for (const MeasuredRow& m : load_profile(kFolder).rows) {
        if (!is_linear(m.row) || m.row.l2 != L2State::kCold) continue;
        const LinearLaunch launch = launch_of(m.row);
        const auto formula =
            static_cast<double>(linear_traffic(launch.shape, launch.form, launch.work).total());
        if (formula < 64e6) continue;
        REQUIRE(m.row.dram_read_bytes);
        REQUIRE(m.row.dram_write_bytes);
        const double error =
            static_cast<double>(*m.row.dram_read_bytes + *m.row.dram_write_bytes) / formula - 1.0;
        INFO(m.place.file << ":" << m.place.line << ": " << error);
        // Below 128 rows, records and inputs outlive the rotation in the L2: profiles/README.md.
        const bool records_warm = launch.form == Form::kBuffered && launch.work.sequences < 128;
        CHECK(error > (records_warm ? -0.06 : -0.03));
        CHECK(error < 0.03);
        ++compared;
    }
    CHECK(compared > 500);
}
