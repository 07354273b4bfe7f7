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
    // Of batches 96 and 192 every buffered row takes twice as long as predicted: error -0.5 on a fifth of the
    // held-out rows, which are 290 with 48 heads at fitted batches and 62 of each held-out batch.
    std::size_t spoilt = 0;
    for (MeasuredRow& m : profile.rows) {
        if (m.row.form == Form::kBuffered && (m.row.batch == 96 || m.row.batch == 192)) {
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
    CHECK(table[4].layer == "gdn buffered fp32 128x128, records bf16");
    CHECK(table[1].held_out.rows == 0);
    CHECK(table[3].held_out.worst < 1e-3);
    CHECK(table[4].fitted.worst < 1e-3);
    CHECK(table[4].held_out.rows == 290 + 5 * 62);
    CHECK(spoilt == 2 * 62);
    CHECK(table[4].held_out.median < 1e-3);
    CHECK(table[4].held_out.p90 == Approx(0.5).epsilon(1e-3));
    REQUIRE(table[4].worst.size() == kWorstRows);
    for (const RowError& e : table[4].worst) {
        CHECK(e.held_out);
        CHECK(e.error == Approx(-0.5).epsilon(1e-3));
        CHECK(e.place.line > 0);
        CHECK_THAT(e.row, ContainsSubstring("batch 96") || ContainsSubstring("batch 192"));
    }
}

TEST_CASE("errors of a kernel are split by ring length, heads and tokens", "[validate]") {
    Profile profile = synthetic_profile_of_all();
    const ProfileFit fit = fit_profile(profile);
    for (MeasuredRow& m : profile.rows) {
        if (m.row.buffer_length == 64) m.row.time_us = *m.row.time_us / 1.25;
    }
    const auto parts_of = [&](const char* layer) {
        for (const ValidationRow& row : validate(profile, fit)) {
            if (row.layer == layer) return row.parts;
        }
        return std::vector<ValidationPart>{};
    };
    const auto decode = parts_of("gdn buffered fp32 128x128, records bf16");
    REQUIRE(decode.size() == 6);  // lengths 4, 16, 64, 128, heads 32 and 48; all have one token
    CHECK(decode[2].name == "length 64");
    CHECK(decode[2].fitted.rows == 10 * 3 * 2 + 8 * 3 * 2);  // three fills; mixed from batch 4 on
    CHECK(decode[2].fitted.median == Approx(0.25).epsilon(1e-3));
    CHECK(decode[1].fitted.worst < 1e-3);
    CHECK(decode[4].name == "heads 16/32");
    CHECK(decode[5].name == "heads 16/48");
    CHECK(decode[5].fitted.rows == 0);
    const auto verify = parts_of("gdn verify_stored fp32 128x128");
    REQUIRE(verify.size() == 8);  // two to nine tokens
    CHECK(verify[0].name == "tokens 2");
    CHECK(verify[0].fitted.rows == 4);    // batch 24 is held out
    CHECK(verify[4].held_out.rows == 5);  // six tokens are
}
