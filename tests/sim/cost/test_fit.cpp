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

// The law of a form with a ring for one of its kernels.
template <class Law>
const Law& law_of(const LinearFit& fit, BufferedKernel kernel) {
    const auto found = std::find_if(fit.regimes.begin(), fit.regimes.end(),
                                    [&](const LinearRegime& r) { return r.kernel == kernel; });
    REQUIRE(found != fit.regimes.end());
    return std::get<Law>(found->law);
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
    check_recovered(law_of<SmallLaw>(fit.linear[1], BufferedKernel::kSmall), kSmallLaw);
    check_recovered(law_of<PipelinedLaw>(fit.linear[1], BufferedKernel::kPipelined), kPipelinedLaw);
    for (const LinearFit& k : fit.linear) {
        // Buffered: 16 fills and 5 flushes, 10 mixed launches from batch 4 on; of other rings 18, and 18
        // mixed ones (32 heads). All with 48 heads are held out, of those with 32 five batches.
        const bool buffered = k.form == Form::kBuffered;
        CHECK(k.fitted.rows == (buffered ? 10 * 21 + 8 * 10 + 10 * 18 + 8 * 18 : 10));
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
    constexpr auto kKernel = BufferedKernel::kPipelined;
    for (const auto& p : kLawParameters<PipelinedLaw>) {
        CHECK(law_of<PipelinedLaw>(a.linear[1], kKernel).*(p.member) ==
              law_of<PipelinedLaw>(b.linear[1], kKernel).*(p.member));
    }
    CHECK(b.linear[1].held_out.median == Approx(0.9).epsilon(1e-3));
}

TEST_CASE("every form and format is fitted with the law that made it", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile_of_all());
    REQUIRE(fit.linear.size() == 6);
    check_recovered(only_law<VerifyStoredLaw>(fit.linear_fit(gdn(32), Form::kVerifyStored)),
                    kVerifyStoredLaw);
    const LinearFit& verify = fit.linear_fit(gdn(32), Form::kVerifyBuffered);
    check_recovered(law_of<VerifySmallLaw>(verify, BufferedKernel::kSmall), kVerifySmallLaw);
    check_recovered(law_of<VerifyPipelinedLaw>(verify, BufferedKernel::kPipelined), kVerifyPipelinedLaw);
    LinearShape split = gdn(32);
    split.state = StateFormat::kSplit;
    const LinearFit& decode = fit.linear_fit(split, Form::kBuffered);
    check_recovered(law_of<SmallLaw>(decode, BufferedKernel::kSmall), kSmallLaw);
    check_recovered(law_of<PipelinedLaw>(decode, BufferedKernel::kPipelined), kPipelinedLaw);
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
    CHECK(k.fitted.rows == 12);  // of fifteen parameters
    const auto& law = only_law<VerifyPipelinedLaw>(k);
    check_recovered(law, std::get<VerifyPipelinedLaw>(true_law(
                             Form::kVerifyBuffered, BufferedKernel::kPipelined, RecordFormat::kFp32U)));
    const auto& lender = law_of<VerifyPipelinedLaw>(fit.linear_fit(gdn(32), Form::kVerifyBuffered),
                                                    BufferedKernel::kPipelined);
    CHECK(law.alone == lender.alone);
    // Inside the range of its rows, and yet not a law of them.
    const LinearWork work{64, 320, 64 * 8, 0, 0};
    CHECK(fit.linear_time({wide, Form::kVerifyBuffered, work, 16}).source == Source::kExtrapolated);
    CHECK(fit.linear_time({gdn(32), Form::kVerifyBuffered, work, 16}).source == Source::kFitted);
    CHECK_FALSE(fit.linear_fit(gdn(32), Form::kVerifyBuffered).borrowed);
}

TEST_CASE("a form without a ring whose launches change their ways with size has two laws", "[fit]") {
    // From 48 rows of 2 MiB on (32 heads) writes are slower.
    RecurrentLaw large = kRecurrentLaw;
    large.write_gb_per_s = 2000.0;
    Profile profile = synthetic_profile();
    for (const std::int64_t batch : {3, 5, 6, 10, 12, 20, 40, 80, 100, 160, 320})
        add_row(profile, linear_row(Form::kRecurrent, 32, batch, 0, 0));
    for (MeasuredRow& m : profile.rows) {
        if (m.row.form != Form::kRecurrent) continue;
        const LinearLaunch l = launch_of(m.row);
        const LinearDemand d = linear_demand(l, linear_traffic(l.shape, l.form, l.work));
        if (d.rows * d.row_state >= 48.0 * 2097152.0)
            m.row.time_us = kNodeUs + large.time_us(d, kReadLaw.gb_per_s);
    }
    const LinearFit fit = fit_profile(profile).linear_fit(gdn(32), Form::kRecurrent);
    REQUIRE(fit.regimes.size() == 2);
    CHECK(fit.regimes[0].max_state_bytes > 40 * 2097152.0);
    CHECK(fit.regimes[0].max_state_bytes < 64 * 2097152.0);
    check_recovered(std::get<RecurrentLaw>(fit.regimes[0].law), kRecurrentLaw);
    CHECK(std::get<RecurrentLaw>(fit.regimes[1].law).write_gb_per_s == Approx(2000.0).epsilon(1e-3));
}

TEST_CASE("the launcher's rule says which kernel's law prices a launch", "[fit]") {
    const auto kernel = [](LinearShape s, Form form, std::int64_t rows, int capacity) {
        const LinearLaunch l{s, form, {rows, rows, 0, 0}, capacity};
        return linear_demand(l, linear_traffic(s, form, l.work)).kernel;
    };
    constexpr auto kSmall = BufferedKernel::kSmall, kPipelined = BufferedKernel::kPipelined;
    CHECK(kernel(gdn(32), Form::kBuffered, 4096, 32) == kSmall);
    CHECK(kernel(gdn(32), Form::kBuffered, 1, 33) == kPipelined);
    CHECK(kernel(gdn(32), Form::kVerifyBuffered, 32, 16) == kSmall);  // 64 MiB
    CHECK(kernel(gdn(32), Form::kVerifyBuffered, 33, 16) == kPipelined);
    CHECK(kernel(gdn(64), Form::kVerifyBuffered, 17, 16) == kPipelined);
    LinearShape bf16 = gdn(32), wide = gdn(32);
    bf16.state = StateFormat::kBf16;
    wide.records = RecordFormat::kFp32U;
    CHECK(kernel(bf16, Form::kBuffered, 4096, 32) == kSmall);
    CHECK(kernel(bf16, Form::kVerifyBuffered, 4096, 32) == kSmall);
    CHECK(kernel(bf16, Form::kBuffered, 1, 33) == kPipelined);
    CHECK(kernel(wide, Form::kBuffered, 1, 16) == kPipelined);
}

TEST_CASE("a pipelined launch is shared out as its launcher does", "[fit]") {
    const auto pipeline = [](std::int64_t rows, std::int64_t tokens, int capacity) {
        const LinearLaunch l{gdn(32), Form::kVerifyBuffered, {rows, rows * tokens, 0, 0}, capacity};
        return linear_demand(l, linear_traffic(l.shape, l.form, l.work)).pipeline;
    };
    // 64 rows, 2048 heads: 15.5 rounds of 132 blocks, 14 of whole heads. The other 200 heads are 800 tiles,
    // seven for the busiest block.
    const PipelineDemand many = pipeline(64, 4, 16);
    CHECK(many.whole_tiles == 56.0);
    CHECK(many.single_tiles == 7.0);
    CHECK(many.units == 21.0);
    // A head's stage of 16 records and one token tile: 8192 B of records, 2560 of vectors, 1024 of values, 64
    // of gates, 40 of scalars, 32 of its description: 12,032 with 16 of barriers and rounded to 128. Ten
    // tiles of 16,400 B leave 68,448 of 232,448 B for heads: five.
    CHECK(many.token_tiles == 1);
    CHECK(many.whole_ahead == 10.0);
    CHECK(many.single_ahead == 5.0);
    // 128 records: 65,536 B and more a head; two of them leave room for five tiles.
    CHECK(pipeline(64, 4, 128).whole_ahead == 5.0);
    // 8 rows: 256 heads are less than four rounds, all 1024 units are tiles.
    const PipelineDemand few = pipeline(8, 5, 16);
    CHECK(few.whole_tiles == 0.0);
    CHECK(few.single_tiles == 8.0);
    CHECK(few.token_tiles == 2);
    CHECK(pipeline(8, 9, 16).token_tiles == 3);
}

TEST_CASE("where a ring's capacity is not known, it is twice what rows read", "[fit]") {
    const auto ahead = [](std::int64_t records, int capacity) {
        const LinearLaunch l{gdn(32), Form::kBuffered, {64, 64, 64 * records, 0}, capacity};
        return linear_demand(l, linear_traffic(l.shape, l.form, l.work)).pipeline.whole_ahead;
    };
    CHECK(ahead(31, 0) == ahead(31, 63));
    CHECK(ahead(127, 0) == ahead(127, 128));
    CHECK(ahead(31, 0) < ahead(31, 32));
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

TEST_CASE("a launch that another of our kernels serves than was measured is extrapolated", "[fit]") {
    ProfileFit fit = fit_profile(synthetic_profile());
    const LinearLaunch few{gdn(32), Form::kBuffered, {16, 16, 16 * 7, 0}, 16};  // of the small kernel
    CHECK(fit.linear_time(few).source == Source::kFitted);
    LinearFit& kernel = fit.linear[1];
    kernel.regimes.erase(kernel.regimes.begin());  // the pipelined one is left, and its law steps in
    const TimedSource timed = fit.linear_time(few);
    CHECK(timed.source == Source::kExtrapolated);
    CHECK(fit.linear_time({gdn(32), Form::kBuffered, {16, 16, 16 * 7, 0}, 64}).source == Source::kFitted);
    kernel.kernel = "theirs";  // whom our launcher's rule does not concern
    CHECK(fit.linear_time(few).source == Source::kFitted);
    CHECK(fit.linear_time(few).time == timed.time);
}

TEST_CASE("a predicted launch costs what the law says", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile());
    // Recurrent, 128 rows, 32 heads: reads 128 x (2 MiB + 16,512) B at 4386 GB/s, 61.685 us; writes 128 x (2
    // MiB
    // + 8,192) B at 3400 GB/s, 79.260 us. With latency 2.6 and serial 0.8:
    // (143.545 + sqrt(138.345^2 + 3.2 x 2.6 x 140.945)) / 2 = 143.033, and the node 0.53.
    const TimedSource recurrent = fit.linear_time({gdn(32), Form::kRecurrent, {128, 128, 0, 0}});
    CHECK(to_us(recurrent.time) == Approx(143.033 + 0.53).epsilon(1e-4));
    // Buffered, small kernel, 16 rows with 7 records each, 4 flush: reads 16 x (2 MiB + 16,512 + 7 x 12,416)
    // B, 8.028 us; writes 4 x 2 MiB + 16 x 20,608 B at 3200 GB/s, 2.724 us. Block 2.2 + 0.05 = 2.25; the last
    // one folds a chunk, 0.1 more, and hides 0.3 x 2.35 of the writes: transfer 10.047. Occupancy 512 / 200 x
    // (2.25 + 0.2 / 4) = 5.888; (15.935 + sqrt(4.159^2 + 0.2 x 5.888 x 10.047)) / 2 = 10.666. Turns 4 x 3/4 x
    // 2 MiB at 7000 GB/s, 0.899; bunching sqrt(4 x 3/4) x 0.65536 = 1.135.
    const TimedSource small = fit.linear_time({gdn(32), Form::kBuffered, {16, 16, 16 * 7, 4, 4 * 8}, 16});
    CHECK(to_us(small.time) == Approx(2.35 + 10.666 + 0.899 + 1.135 + 0.53).epsilon(1e-4));
    // Pipelined kernel, 128 such rows with rings of 64, of which 8 flush: reads 71.356 us at 0.9 x 4386 GB/s,
    // writes 4.854 us at 4000 GB/s. A tile 0.08 + 0.05 = 0.13, a fold 0.07 + 0.2 = 0.27: busy 0.13 + 0.27 /
    // 16 = 0.147, held 1 + 5 x 0.147 = 1.734. A head's stage is 36,752 B (32,768 of records, 3,984 as below);
    // of 232,448 B, three of them leave room for seven tiles. Of 4096 heads each block has 30 whole ones; 136
    // are left, 544 tiles, five for the busiest block. Occupancy: 120 tiles of whole heads, seven in flight,
    // 0.248 each; four single ones after the first, three in flight, 0.578 each; 35 units of 0.3: 42.545.
    // (118.755 + sqrt(33.666^2 + 0.4 x 42.545 x 76.210)) / 2 = 84.027. Last tile 5 x 0.4 = 2. Bunching 0.6 x
    // sqrt(31.030 / 16 x 15/16) x 5 x 0.27 = 1.092.
    const TimedSource buffered =
        fit.linear_time({gdn(32), Form::kBuffered, {128, 128, 128 * 7, 8, 8 * 8}, 64});
    CHECK(to_us(buffered.time) == Approx(4.0 + 2.0 + 84.027 + 1.092 + 0.53).epsilon(1e-4));
    // Copy of 4.231 MB: 1 us of transfer; (2.7 + sqrt(0.49 + 4 x 0.6 x 1.7)) / 2 = 2.4189 us.
    CHECK(fit.copy.law.time_us(4'231'000) == Approx(2.4189).epsilon(1e-3));
}

TEST_CASE("a predicted verify costs what the law says", "[fit]") {
    const ProfileFit fit = fit_profile(synthetic_profile_of_all());
    // Stored states, 8 rows of five tokens: reads 8 x (2 MiB + 5 x 16,512) B at 4386 GB/s, 3.976 us; writes 8
    // x 5 x (2 MiB + 8,192) B at 3300 GB/s, 25.519 us. Block 2.8 + 4 x 0.4 = 4.4, serial 0.7: (33.895 +
    // sqrt(25.095^2 + 2.8 x 4.4 x 29.495)) / 2 = 32.709.
    const TimedSource stored = fit.linear_time({gdn(32), Form::kVerifyStored, {8, 40, 0, 0}});
    CHECK(to_us(stored.time) == Approx(32.709 + 0.53).epsilon(1e-3));
    // Ring, 8 rows of five tokens and 4 records, short blocks: reads 8 x (2 MiB + 4 x 12,416 + 5 x 16,512) B
    // at 4386 GB/s, 4.066 us; writes 40 x (12,416 + 8,192) B at 3300 GB/s, 0.250 us. Two token tiles: a block
    // takes 1.5 x (2.4 + 0.04) + 4 x 0.05 = 3.86, and hides the writes. Occupancy 256 / 150 x 3.86 = 6.588;
    // (10.654 + sqrt(2.521^2 + 0.28 x 6.588 x 4.066)) / 2 = 7.188.
    const TimedSource ring = fit.linear_time({gdn(32), Form::kVerifyBuffered, {8, 40, 32, 0}, 16});
    CHECK(to_us(ring.time) == Approx(3.86 + 7.188 + 0.53).epsilon(1e-4));
    // The same of 64 rows, pipelined: reads at 0.95 x 4386 GB/s, 34.243 us; writes at 3900 GB/s, 1.691 us. A
    // tile takes 1.7 x (0.2 + 0.06) + 4 x 0.02 = 0.522, held 2 + 4.5 x 0.522 = 4.349. Occupancy: 56 tiles of
    // whole heads, ten in flight, 0.522 each; six single ones after the first, four in flight, 1.087 each; 21
    // units of 0.1: 37.856. (73.790 + sqrt(1.921^2 + 0.4 x 37.856 x 35.934)) / 2 = 48.598.
    const TimedSource pipelined = fit.linear_time({gdn(32), Form::kVerifyBuffered, {64, 320, 256, 0}, 16});
    CHECK(to_us(pipelined.time) == Approx(4.2 + 4.5 * 0.522 + 48.598 + 0.53).epsilon(1e-3));
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

TEST_CASE("the append probe changes no law", "[fit]") {
    Profile profile = synthetic_profile();
    const std::string text = to_yaml(fit_profile(profile));
    for (const std::int64_t rows : {1, 512})
        profile.rows.push_back(
            {probe_row("stream_append", rows * 2'117'632, 1e6), {"stream_append.csv", 2, 0}});
    CHECK(to_yaml(fit_profile(profile)) == text);
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
