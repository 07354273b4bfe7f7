#include "sim/cost/validate.hpp"

#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

TEST_CASE("percentiles of errors by linear interpolation", "[validate]") {
    const ErrorSummary e = summarise_errors({0.04, 0.01, 0.02, 0.03, 0.10});
    CHECK(e.rows == 5);
    CHECK(e.median == Approx(0.03));
    CHECK(e.p90 == Approx(0.04 + 0.6 * 0.06));  // rank 3.6 of 0..4
    CHECK(e.worst == Approx(0.10));
    CHECK(summarise_errors({}).rows == 0);
}

TEST_CASE("validation reports every kernel, held-out and fitted rows apart", "[validate]") {
    Profile profile = synthetic_profile();
    const ProfileFit fit = fit_profile(profile);
    // Of batch 96 every buffered row takes twice as long as predicted: error -0.5 on a fifth of the held-out
    // rows.
    std::size_t spoilt = 0;
    for (MeasuredRow& m : profile.rows) {
        if (m.row.form == Form::kBuffered && m.row.batch == 96) {
            m.row.time_us = *m.row.time_us * 2.0;
            ++spoilt;
        }
    }
    const std::vector<ValidationRow> table = validate(profile, fit);
    REQUIRE(table.size() == 5);
    CHECK(table[0].kernel == "empty");
    CHECK(table[1].kernel == "stream_copy");
    CHECK(table[2].kernel == "stream_read");
    CHECK(table[3].kernel == "linear_recurrent");
    CHECK(table[4].kernel == "linear_buffered");
    CHECK(table[4].layer == "gdn buffered fp32 128x128");
    CHECK(table[1].held_out.rows == 0);
    CHECK(table[3].held_out.worst < 1e-3);
    CHECK(table[4].fitted.worst < 1e-3);
    CHECK(table[4].held_out.rows == static_cast<std::int64_t>(5 * spoilt));
    CHECK(table[4].held_out.median < 1e-3);
    CHECK(table[4].held_out.p90 == Approx(0.5).epsilon(1e-3));
    REQUIRE(table[4].worst.size() == kWorstRows);
    for (const RowError& e : table[4].worst) {
        CHECK(e.held_out);
        CHECK(e.error == Approx(-0.5).epsilon(1e-3));
        CHECK(e.place.line > 0);
        CHECK_THAT(e.row, ContainsSubstring("batch 96"));
    }
}
