#include "sim/cost/fit.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

template <class Law>
void check_recovered(const Law& fitted, const Law& truth) {
    for (const auto& p : kLawParameters<Law>) {
        INFO(p.name);
        CHECK(fitted.*(p.member) == Approx(truth.*(p.member)).epsilon(1e-3));
    }
}

// The one law of a kernel.
template <class Law>
const Law& only_law(const LinearFit& fit) {
    REQUIRE(fit.regimes.size() == 1);
    return std::get<Law>(fit.regimes.front().law);
}

}  // namespace

TEST_CASE("the soft maximum lies between max and sum", "[fit]") {
    CHECK(soft_max(3.0, 5.0, 0.0) == Approx(5.0));
    CHECK(soft_max(3.0, 5.0, 1.0) == Approx(8.0));
    CHECK(soft_max(3.0, 5.0, 0.3) > 5.0);
    CHECK(soft_max(3.0, 5.0, 0.3) < 8.0);
    CHECK(soft_max(3.0, 5.0, 0.3) == Approx(soft_max(5.0, 3.0, 0.3)));
    CHECK(soft_max(6.0, 10.0, 0.3) == Approx(2.0 * soft_max(3.0, 5.0, 0.3)));  // no scale of its own
}

TEST_CASE("a fit recovers the laws that made its profile, and predicts what it never saw", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    CHECK(to_us(fit.empty_node) == Approx(kNodeUs));
    check_recovered(fit.copy.law, kCopyLaw);
    check_recovered(fit.read.law, kReadLaw);
    REQUIRE(fit.linear.size() == 2);
    check_recovered(only_law<RecurrentLaw>(fit.linear[0]), kRecurrentLaw);
    check_recovered(only_law<BufferedLaw>(fit.linear[1]), kBufferedLaw);
    for (const LinearFit& k : fit.linear) {
        // Buffered: 16 fills and 5 flushes, 10 mixed launches from batch 4 on, 12 of other rings (32 heads).
        // All with 48 heads are held out, of those with 32 five batches.
        const bool buffered = k.form == Form::kBuffered;
        CHECK(k.fitted.rows == (buffered ? 10 * 21 + 8 * 10 + 10 * 12 : 10));
        CHECK(k.held_out.rows == (buffered ? 10 * 21 + 8 * 10 + 5 * 2 * 31 : 10 + 5 * 2));
        CHECK(k.fitted.worst < 1e-4);
        CHECK(k.held_out.worst < 1e-4);
        CHECK(k.batch.min == 1.0);
        CHECK(k.batch.max == 512.0);
        CHECK(k.v_heads.max == 48.0);
    }
    CHECK(fit.linear[1].records_per_row.max == 127.0);
}

TEST_CASE("held-out rows change nothing in a fit", "[fit]") {
    Profile spoilt = synthetic_profile();
    for (MeasuredRow& m : spoilt.rows) {
        if (held_out(m.row)) m.row.time_us = *m.row.time_us * 10.0;
    }
    const ProfileFit a = fit_profile(synthetic_profile());
    const ProfileFit b = fit_profile(spoilt);
    for (const auto& p : kLawParameters<BufferedLaw>) {
        CHECK(only_law<BufferedLaw>(a.linear[1]).*(p.member) ==
              only_law<BufferedLaw>(b.linear[1]).*(p.member));
    }
    CHECK(b.linear[1].held_out.median == Approx(0.9).epsilon(1e-3));
}

TEST_CASE("every form and format is fitted with the law that made it", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile_of_all());
    REQUIRE(fit.linear.size() == 6);
    check_recovered(only_law<VerifyStoredLaw>(fit.linear_fit(gdn(32), Form::kVerifyStored)),
                    kVerifyStoredLaw);
    check_recovered(only_law<VerifyBufferedLaw>(fit.linear_fit(gdn(32), Form::kVerifyBuffered)),
                    kVerifyBufferedLaw);
    LinearShape split = gdn(32);
    split.state = StateFormat::kSplit;
    check_recovered(only_law<BufferedLaw>(fit.linear_fit(split, Form::kBuffered)), kBufferedLaw);
    for (const LinearFit& k : fit.linear) {
        INFO(k.kernel << " " << name(k.state) << " " << name(k.records));
        CHECK(k.fitted.worst < 1e-4);
        CHECK(k.held_out.worst < 1e-4);
    }
}

TEST_CASE("a few rows of another record format borrow all that does not depend on records", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile_of_all());
    LinearShape wide = gdn(32);
    wide.records = RecordFormat::kFp32U;
    const LinearFit& k = fit.linear_fit(wide, Form::kVerifyBuffered);
    CHECK(k.borrowed);
    CHECK(k.fitted.rows == 6);  // of nine parameters
    const auto& law = only_law<VerifyBufferedLaw>(k);
    check_recovered(law, std::get<VerifyBufferedLaw>(true_law(Form::kVerifyBuffered, RecordFormat::kFp32U)));
    const auto& lender = only_law<VerifyBufferedLaw>(fit.linear_fit(gdn(32), Form::kVerifyBuffered));
    CHECK(law.heads_in_flight == lender.heads_in_flight);
    CHECK_FALSE(fit.linear_fit(gdn(32), Form::kVerifyBuffered).borrowed);
}

TEST_CASE("two kernels behind one form are two laws, joined where the launcher changes over", "[fit]") {
    // From 48 rows of 2 MiB on (32 heads) the launches take what another kernel would.
    BufferedLaw large = kBufferedLaw;
    large.latency_us = 6.0;
    large.heads_in_flight = 400.0;
    Profile profile = synthetic_profile();
    for (MeasuredRow& m : profile.rows) {
        if (m.row.form != Form::kBuffered) continue;
        const LinearLaunch l = launch_of(m.row);
        const LinearDemand d = linear_demand(l, linear_traffic(l.shape, l.form, l.work));
        if (d.rows * d.row_state >= 48.0 * 2097152.0)
            m.row.time_us = kNodeUs + large.time_us(d, kReadLaw.gb_per_s);
    }
    const LinearFit fit = fit_profile(profile).linear_fit(gdn(32), Form::kBuffered);
    REQUIRE(fit.regimes.size() == 2);
    CHECK(fit.regimes[0].max_state_bytes > 32 * 2097152.0);
    CHECK(fit.regimes[0].max_state_bytes < 64 * 2097152.0);
    check_recovered(std::get<BufferedLaw>(fit.regimes[0].law), kBufferedLaw);
    check_recovered(std::get<BufferedLaw>(fit.regimes[1].law), large);
}

TEST_CASE("held-out rows lie on every axis", "[fit]") {
    const auto reason = [](std::int64_t batch, int v_heads, std::int64_t capacity, std::int64_t tokens) {
        return held_out_for(measured({gdn(v_heads), Form::kVerifyBuffered, batch, 0, 0, tokens, capacity}));
    };
    CHECK_FALSE(reason(64, 32, 16, 5).any());
    CHECK((reason(96, 32, 16, 5).batch && reason(64, 48, 16, 5).heads));
    CHECK((reason(64, 32, 32, 5).length && reason(64, 32, 16, 6).tokens));
}

TEST_CASE("warm rows are no part of a fit", "[fit]") {
    Profile profile = synthetic_profile();
    MeasuredRow warm{linear_row(Form::kRecurrent, 32, 128, 0, 0), {}};
    warm.row.l2 = L2State::kWarm;
    warm.row.time_us = 1.0;
    profile.rows.push_back(warm);
    CHECK(fit_profile(profile).linear[0].fitted.worst < 1e-4);
}

TEST_CASE("inside its range an estimate is fitted, outside extrapolated", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    const auto source = [&](int v_heads, std::int64_t batch, std::int64_t records) {
        return fit.linear_time({gdn(v_heads), Form::kBuffered, {batch, batch, records, 0}}).source;
    };
    CHECK(source(32, 128, 128 * 127) == Source::kFitted);
    CHECK(source(32, 100, 100 * 7 + 3) == Source::kFitted);  // between measured points
    CHECK(source(32, 513, 0) == Source::kExtrapolated);
    CHECK(source(32, 128, 128 * 127 + 1) == Source::kExtrapolated);
    CHECK(source(16, 128, 0) == Source::kExtrapolated);
    CHECK(source(64, 128, 0) == Source::kExtrapolated);
}

TEST_CASE("a predicted launch costs what the law says", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    // Recurrent, 128 rows, 32 heads: reads 128 x (2 MiB + 16,512) B at 4386 GB/s, 61.685 us; writes 128 x (2
    // MiB
    // + 8,192) B at 3400 GB/s, 79.260 us. With latency 2.6 and serial 0.8:
    // (143.545 + sqrt(138.345^2 + 3.2 x 2.6 x 140.945)) / 2 = 143.033, and the node 0.53.
    const TimedSource recurrent = fit.linear_time({gdn(32), Form::kRecurrent, {128, 128, 0, 0}});
    CHECK(to_us(recurrent.time) == Approx(143.033 + 0.53).epsilon(1e-4));
    // Buffered, 64 rows with 7 records each, 4 flush: reads 64 x (2 MiB + 16,512 + 7 x 12,416) B, 32.111 us;
    // writes 4 x 2 MiB + 64 x 20,608 B at 3200 GB/s, 3.034 us. Block 2.2 + 7 x 0.05 = 2.55; the last one
    // folds 8 x 0.1 more. Occupancy 2048 / 200 x (2.55 + 8 x 0.2 / 16) = 27.136, hidden by the transfer but
    // for (62.280 + sqrt(8.008^2 + 0.2 x 27.136 x 35.144)) / 2 = 39.122. Turns 4 x 15/16 x 2 MiB at 7000
    // GB/s, 1.123; bunching sqrt(4 x 15/16) x 0.65536 = 1.269.
    const TimedSource buffered = fit.linear_time({gdn(32), Form::kBuffered, {64, 64, 64 * 7, 4, 4 * 8}});
    CHECK(to_us(buffered.time) == Approx(3.35 + 39.122 + 1.123 + 1.269 + 0.53).epsilon(1e-4));
    // Copy of 4.231 MB: 1 us of transfer; (2.7 + sqrt(0.49 + 4 x 0.6 x 1.7)) / 2 = 2.4189 us.
    CHECK(fit.copy.bandwidth(Bytes(4'231'000)).value() == Approx(4'231'000 / 2.4189e-6).epsilon(1e-3));
}

TEST_CASE("a predicted verify costs what the law says", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile_of_all());
    // Stored states, 8 rows of five tokens: reads 8 x (2 MiB + 5 x 16,512) B at 4386 GB/s, 3.976 us; writes 8
    // x 5 x (2 MiB + 8,192) B at 3300 GB/s, 25.519 us. Block 2.8 + 4 x 0.4 = 4.4, serial 0.7: (33.895 +
    // sqrt(25.095^2 + 2.8 x 4.4 x 29.495)) / 2 = 32.709.
    const TimedSource stored = fit.linear_time({gdn(32), Form::kVerifyStored, {8, 40, 0, 0}});
    CHECK(to_us(stored.time) == Approx(32.709 + 0.53).epsilon(1e-3));
    // Ring, 8 rows of five tokens and 4 records: reads 8 x (2 MiB + 4 x 12,416 + 5 x 16,512) B, 4.067 us;
    // writes 40 x (12,416 + 8,192) B at 3100 GB/s, 0.266 us. Block 2.5 + 4 x 0.06 + 4 x 0.3 = 3.94; occupancy
    // 256 / 250 x 3.94 = 4.035; (8.368 + sqrt(0.298^2 + 0.2 x 4.035 x 4.333)) / 2 = 5.130.
    const TimedSource ring = fit.linear_time({gdn(32), Form::kVerifyBuffered, {8, 40, 32, 0}});
    CHECK(to_us(ring.time) == Approx(3.94 + 5.130 + 0.53).epsilon(1e-3));
    CHECK(ring.source == Source::kFitted);
    CHECK(fit.linear_time({gdn(32), Form::kVerifyBuffered, {8, 80, 32, 0}}).source == Source::kExtrapolated);
}

TEST_CASE("a form or layer that was not measured is refused with the profile's name", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    const LinearWork work{1, 5, 0, 0};
    CHECK_THROWS_WITH(fit.linear_time({gdn(32), Form::kVerifyStored, work}),
                      ContainsSubstring("synthetic") && ContainsSubstring("linear_verify_stored rows") &&
                          ContainsSubstring("only\n    family gdn, form recurrent, state fp32"));
    LinearShape bf16 = gdn(32);
    bf16.state = StateFormat::kBf16;
    CHECK_THROWS_WITH(fit.linear_time({bf16, Form::kRecurrent, work}), ContainsSubstring("bf16"));
    LinearShape wide = gdn(32);
    wide.records = RecordFormat::kFp32U;
    CHECK_THROWS_WITH(fit.linear_time({wide, Form::kBuffered, {1, 1, 0, 0}}),
                      ContainsSubstring("records fp32_u"));
    CHECK_NOTHROW(fit.linear_time({wide, Form::kRecurrent, {1, 1, 0, 0}}));  // has no records
}

TEST_CASE("profiles that cannot be fitted are refused", "[fit]") {
    Profile no_copy = synthetic_profile();
    std::erase_if(no_copy.rows, [](const MeasuredRow& m) { return m.row.kernel == "stream_copy"; });
    CHECK_THROWS_WITH(fit_profile(no_copy), ContainsSubstring("stream_copy"));

    Profile few = synthetic_profile();
    std::erase_if(few.rows,
                  [](const MeasuredRow& m) { return m.row.form == Form::kBuffered && m.row.batch != 1; });
    few.rows.resize(40);  // probes, recurrent rows of one batch, then buffered ones
    std::erase_if(few.rows, [](const MeasuredRow& m) { return m.row.fill.value_or(0) > 1; });
    CHECK_THROWS_WITH(fit_profile(few), ContainsSubstring("rows to fit"));

    Profile direct = synthetic_profile();
    direct.rows.push_back({linear_row(Form::kRecurrent, 32, 1, 0, 0), {}});
    direct.rows.back().row.form = Form::kDirect;
    CHECK_THROWS_WITH(fit_profile(direct), ContainsSubstring("no law for form direct"));
}
