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
        CHECK(k.fitted.rows > 0);
        CHECK(k.held_out.rows * 2 == k.fitted.rows + (k.form == Form::kRecurrent ? 0 : 2 * 2 * 2 * 5));
        CHECK(k.fitted.worst < 1e-4);
        CHECK(k.held_out.worst < 1e-4);
        CHECK(k.batch.min == 1.0);
        CHECK(k.batch.max == 512.0);
        CHECK(k.v_heads.max == 48.0);
    }
    CHECK(fit.linear[1].records.max == 15.0);
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
        return fit.linear_time(gdn(v_heads), Form::kBuffered, {batch, batch, records, 0}).source;
    };
    CHECK(source(32, 128, 128 * 15) == Source::kFitted);
    CHECK(source(32, 100, 100 * 7 + 3) == Source::kFitted);  // between measured points
    CHECK(source(32, 513, 0) == Source::kExtrapolated);
    CHECK(source(32, 128, 128 * 15 + 1) == Source::kExtrapolated);
    CHECK(source(16, 128, 0) == Source::kExtrapolated);
    CHECK(source(64, 128, 0) == Source::kExtrapolated);
}

TEST_CASE("a predicted launch costs what the law says", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    // Recurrent, 128 rows, 32 heads: 128 x (2 x 2 MiB + 16,512 + 8,192) = 540,033,024 B at 4150 GB/s =
    // 130.128 us; with latency 2.6 and serial 0.8: (132.728 + sqrt(127.528^2 + 3.2 x 2.6 x 130.128)) / 2 =
    // 132.241, + node 0.53.
    const TimedSource t = fit.linear_time(gdn(32), Form::kRecurrent, {128, 128, 0, 0});
    CHECK(to_us(t.time) == Approx(132.216 + 0.53).epsilon(1e-4));
    // Copy of 4.231 MB: 1 us of transfer; (2.7 + sqrt(0.49 + 4 x 0.6 x 1.7)) / 2 = 2.4189 us.
    CHECK(fit.copy.bandwidth(Bytes(4'231'000)).value() == Approx(4'231'000 / 2.4189e-6).epsilon(1e-3));
}

TEST_CASE("a form or layer that was not measured is refused with the profile's name", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    const LinearWork work{1, 5, 0, 0};
    CHECK_THROWS_WITH(fit.linear_time(gdn(32), Form::kVerifyStored, work),
                      ContainsSubstring("synthetic") && ContainsSubstring("verify_stored"));
    LinearShape bf16 = gdn(32);
    bf16.state = StateFormat::kBf16;
    CHECK_THROWS_WITH(fit.linear_time(bf16, Form::kRecurrent, work), ContainsSubstring("bf16"));
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
