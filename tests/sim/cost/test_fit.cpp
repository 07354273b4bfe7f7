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
    check_recovered(std::get<RecurrentLaw>(fit.linear[0].law), kRecurrentLaw);
    check_recovered(std::get<BufferedLaw>(fit.linear[1].law), kBufferedLaw);
    for (const LinearFit& k : fit.linear) {
        // Buffered: 16 fills and 5 flushes, 10 mixed launches from batch 4 on, 12 of other rings (32 heads).
        const bool buffered = k.form == Form::kBuffered;
        CHECK(k.fitted.rows == (buffered ? 10 * 2 * 21 + 8 * 2 * 10 + 10 * 12 : 10 * 2));
        CHECK(k.held_out.rows == (buffered ? 5 * 2 * 31 : 5 * 2));
        CHECK(k.fitted.worst < 1e-4);
        CHECK(k.held_out.worst < 1e-4);
        CHECK(k.batch.min == 1.0);
        CHECK(k.batch.max == 512.0);
        CHECK(k.v_heads.max == 48.0);
    }
    CHECK(fit.linear[1].records.max == 127.0);
}

TEST_CASE("rows of held-out batches change nothing in a fit", "[fit]") {
    Profile spoilt = synthetic_profile();
    for (MeasuredRow& m : spoilt.rows) {
        if (held_out(m.row)) m.row.time_us = *m.row.time_us * 10.0;
    }
    const ProfileFit a = fit_profile(synthetic_profile());
    const ProfileFit b = fit_profile(spoilt);
    for (const auto& p : kLawParameters<BufferedLaw>) {
        CHECK(std::get<BufferedLaw>(a.linear[1].law).*(p.member) ==
              std::get<BufferedLaw>(b.linear[1].law).*(p.member));
    }
    CHECK(b.linear[1].held_out.median == Approx(0.9).epsilon(1e-3));
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

TEST_CASE("a form or layer that was not measured is refused with the profile's name", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    const LinearWork work{1, 5, 0, 0};
    CHECK_THROWS_WITH(fit.linear_time({gdn(32), Form::kVerifyStored, work}),
                      ContainsSubstring("synthetic") && ContainsSubstring("verify_stored"));
    LinearShape bf16 = gdn(32);
    bf16.state = StateFormat::kBf16;
    CHECK_THROWS_WITH(fit.linear_time({bf16, Form::kRecurrent, work}), ContainsSubstring("bf16"));
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

    Profile verify = synthetic_profile();
    verify.rows.push_back({linear_row(Form::kRecurrent, 32, 1, 0, 0), {}});
    verify.rows.back().row.form = Form::kVerifyStored;
    CHECK_THROWS_WITH(fit_profile(verify), ContainsSubstring("no law for form verify_stored"));
}
