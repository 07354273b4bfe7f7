// The committed profile of the H200: read, fitted, judged on rows that the fit never saw.
#include <algorithm>
#include <cmath>

#include "sim/cost/validate.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;

namespace {

const char* const kFolder = KVSIM_SOURCE_DIR "/profiles/h200";

}  // namespace

TEST_CASE("held-out rows of the H200: median below 4 %, P90 below 10 %", "[h200]") {
    const Profile profile = load_profile(kFolder);
    const ProfileFit fit = fit_profile(profile);
    int layers = 0, judged = 0;
    for (const ValidationRow& v : validate(profile, fit)) {
        if (v.layer.empty()) continue;
        INFO(v.layer);
        ++layers;
        // Forms and formats of which too few rows were measured to hold any out.
        if (v.held_out.rows == 0) {
            // Nine rows of verification with u in fp32 borrow the law of bf16 records.
            const bool borrowed = v.layer.starts_with("gdn verify_buffered") && v.layer.ends_with("fp32_u");
            CHECK(v.fitted.median < (borrowed ? 0.06 : 0.04));
            CHECK(v.fitted.p90 < (borrowed ? 0.12 : 0.10));
            continue;
        }
        ++judged;
        const bool fp32 = v.layer.find(" fp32 ") != std::string::npos;
        CHECK(v.held_out.median < (fp32 ? 0.02 : 0.04));
        CHECK(v.held_out.p90 < (fp32 ? 0.05 : 0.10));
    }
    CHECK(layers == 13);
    CHECK(judged == 9);
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

namespace {

// Where counted bytes may leave the formula by more than 3 %: profiles/README.md says why.
struct Allowance {
    double below = -0.03, above = 0.03;
};

Allowance allowance_of(const ProfileRow& r) {
    Allowance a;
    if (has_ring(*r.form)) {
        const bool half_words = *r.state_dtype != StateFormat::kFp32;
        const bool pipelined = *r.buffer_length >= 64 || r.records == RecordFormat::kFp32U;
        // What is written without a flush is a few per cent of the bytes, and most of it is not counted.
        if (pipelined && *r.flush_rows <= 2) a.below = half_words ? -0.06 : -0.035;
        // Keys of long rings probably leave the L2 before all value heads of their group have read them.
        if (*r.buffer_length >= 64) a.above = 0.10;
    }
    if (r.form == Form::kVerifyBuffered && *r.flush_rows > 0) {
        // The fold reads the high plane of a split state again: not all of it is still in the L2.
        if (r.state_dtype == StateFormat::kSplit) a.above = std::max(a.above, 0.035);
        // Nine tokens and a flush do not fit in registers; probably some of what is spilled reaches the DRAM.
        if (*r.tokens == 9 && *r.state_dtype == StateFormat::kFp32) a.above = 0.10;
    }
    // Two rows, for no known reason; those with 16 instead of 4 key heads count what the formula says.
    if (r.form == Form::kVerifyStored && *r.k_heads == 4) a.above = 0.14;
    return a;
}

}  // namespace

TEST_CASE("counted DRAM bytes are those of the traffic formulas", "[h200]") {
    int compared = 0, beyond = 0;
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
        const Allowance allowed = allowance_of(m.row);
        CHECK(error > allowed.below);
        CHECK(error < allowed.above);
        if (launch.form == Form::kRecurrent) CHECK(std::abs(error) < 1e-3);
        ++compared;
        if (std::abs(error) > 0.03) ++beyond;
    }
    CHECK(compared == 1013);
    CHECK(beyond == 61);
}
