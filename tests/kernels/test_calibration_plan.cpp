#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include "kernels/calibrate/grid.hpp"
#include "kernels/calibrate/plan.hpp"
#include "kernels/calibrate/replay_rule.hpp"
#include "sim/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::calibrate;

namespace {

const std::string kGrids = KVSIM_SOURCE_DIR "/configs/calibration/";
constexpr LinearShape kShape{Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};

std::ptrdiff_t count(const std::vector<Case>& cases, Kernel kernel) {
    return std::count_if(cases.begin(), cases.end(), [=](const Case& c) { return c.kernel == kernel; });
}

Case buffered(int batch, int capacity, std::optional<int> fill, int flush_rows) {
    return {.kernel = Kernel::kLinearBuffered,
            .shape = kShape,
            .batch = batch,
            .buffer_length = capacity,
            .fill = fill,
            .flush_rows = flush_rows};
}

std::string mistakes_of(const std::string& yaml) {
    const std::string file = KVSIM_BINARY_DIR "/test_calibration_plan.yaml";
    std::ofstream(file) << yaml;
    try {
        load_grid(file);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("h200.yaml gives the number of rows that its lists say") {
    const std::vector<Case> cases = load_grid(kGrids + "h200.yaml");
    CHECK(count(cases, Kernel::kEmpty) == 1);
    CHECK(count(cases, Kernel::kStreamCopy) == 16);  // 2^16 .. 2^31
    CHECK(count(cases, Kernel::kStreamRead) == 16);
    CHECK(count(cases, Kernel::kLinearRecurrent) == 2 * (15 + 7));
    // Ring of 16: 16 fills, 5 flushes, and the mixed numbers of flushing rows {1, 2, B/16, B/4} that are
    // distinct, at least 1 and below B (all B rows is one of the 5 flushes): none at batch 1; 1 at 2; 1, 2 at
    // 4 and 8 (B/4 = 1, 2); 1, 2, B/4 at 16, 24, 32 (B/16 = 1, 1, 2); 1, 2, B/16, B/4 from 48.
    const int mixed = 0 + 1 + 2 + 2 + 3 * 3 + 8 * 4;
    // Other rings: at capacity 2 the fills 0, (2-1)/2 = 0 and 1 are two; else three; and one flush.
    // B/C rows flush: at batches 8, 32, 128, 256 for 2, 4, 8; not at 8 for 24 and 32; at 128 and 256 for 64
    // and 128.
    const int steady = 3 * 4 + 2 * 3 + 2 * 2;
    const int other = 5 * (2 + 1) + 6 * 5 * (3 + 1) + steady;
    CHECK(count(cases, Kernel::kLinearBuffered) == 2 * (15 * (16 + 5) + mixed) + other);
}

TEST_CASE("no grid repeats a row, and pools are made once") {
    for (const char* file : {"h200.yaml", "smoke.yaml"}) {
        CAPTURE(file);
        const std::vector<Case> cases = load_grid(kGrids + file);
        const auto repeated = [&](const Case& c) { return std::count(cases.begin(), cases.end(), c) > 1; };
        CHECK(std::none_of(cases.begin(), cases.end(), repeated));
        std::size_t total = 0;
        const auto parts = groups(cases);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            total += parts[i].size();
            for (std::size_t j = i + 1; j < parts.size(); ++j)
                CHECK_FALSE(same_group(parts[i][0], parts[j][0]));
        }
        CHECK(total == cases.size());
    }
    // Empty, copy, read; recurrent and ring 16 for two head counts; seven more rings.
    CHECK(groups(load_grid(kGrids + "h200.yaml")).size() == 3 + 2 + 2 + 7);
}

TEST_CASE("sizes of a probe double") {
    const std::vector<Case> cases = expand(Kernel::kStreamRead, Bytes(1 << 16), Bytes((1 << 18) + 5));
    REQUIRE(cases.size() == 3);
    CHECK(cases[2].bytes == Bytes(1 << 18));
}

TEST_CASE("phases of a launch") {
    SECTION("one phase") {
        const RowPhases all = row_phases(buffered(8, 16, 7, 8), 1);
        CHECK(all.fill == std::vector<std::int32_t>(8, 7));
        CHECK(all.flush == std::vector<std::uint8_t>(8, 1));
        CHECK(row_phases(buffered(8, 16, 7, 0), 1).flush == std::vector<std::uint8_t>(8, 0));
    }
    SECTION("mixed: full rings flush, the others spread evenly") {
        // 30 rows that do not flush, 15 levels: each twice.
        const RowPhases mixed = row_phases(buffered(32, 16, std::nullopt, 2), 1);
        std::vector<int> rows_at(16);
        for (std::size_t i = 0; i < 32; ++i) {
            rows_at[static_cast<std::size_t>(mixed.fill[i])] += 1;
            CHECK((mixed.fill[i] == 15) == (mixed.flush[i] == 1));
        }
        CHECK(rows_at == std::vector<int>(16, 2));
        CHECK_FALSE(std::is_sorted(mixed.fill.begin(), mixed.fill.end()));
        CHECK(row_phases(buffered(32, 16, std::nullopt, 2), 1).fill == mixed.fill);
    }
    SECTION("a row alone sits in the middle of 0..14") {
        const RowPhases pair = row_phases(buffered(2, 16, std::nullopt, 1), 1);
        CHECK(std::accumulate(pair.fill.begin(), pair.fill.end(), 0) == 7 + 15);
    }
}

TEST_CASE("the columns that describe a launch") {
    const ProfileRow mixed = describe(buffered(32, 16, std::nullopt, 2));
    CHECK(mixed.kernel == "linear_buffered");
    CHECK(mixed.form == Form::kBuffered);
    CHECK_FALSE(mixed.fill.has_value());
    CHECK(mixed.buffered_tokens == 2 * (14 * 15 / 2) + 2 * 15);  // each of 0..14 twice, two full rings
    CHECK(mixed.flush_rows == 2);
    CHECK_FALSE(mixed.bytes.has_value());
    CHECK_FALSE(mixed.time_us.has_value());

    const ProfileRow copy = describe({.kernel = Kernel::kStreamCopy, .bytes = Bytes(1 << 20)});
    CHECK(copy.bytes == 2 << 20);  // read and written
    CHECK_FALSE(copy.batch.has_value());
    CHECK(describe({.kernel = Kernel::kStreamRead, .bytes = Bytes(1 << 20)}).bytes == 1 << 20);

    const ProfileRow recurrent =
        describe({.kernel = Kernel::kLinearRecurrent, .shape = kShape, .batch = 4, .l2 = L2State::kWarm});
    CHECK(recurrent.l2 == L2State::kWarm);
    CHECK_FALSE(recurrent.buffer_length.has_value());
    CHECK_FALSE(recurrent.flush_rows.has_value());
}

TEST_CASE("rotations touch 320 MB and four times the L2, and never one set only") {
    Case c{.kernel = Kernel::kLinearRecurrent, .shape = kShape, .batch = 1};
    // A state is 32 x 128 x 128 x 4 = 2,097,152 bytes: 153 of them are 320.9 MB, 152 are 318.8 MB.
    CHECK(rotation_sets(c, Bytes(50 << 20)) == 153);
    // L2 of 126 MiB: 504 MiB in states of 2 MiB.
    CHECK(rotation_sets(c, Bytes(126 << 20)) == 252);
    c.batch = 512;  // one set alone is 1 GiB
    CHECK(rotation_sets(c, Bytes(50 << 20)) == 2);
    c.l2 = L2State::kWarm;
    CHECK(rotation_sets(c, Bytes(50 << 20)) == 1);
    CHECK(rotation_sets({.kernel = Kernel::kEmpty}, Bytes(50 << 20)) == 1);
    // A copy touches source and destination.
    const Case copy{.kernel = Kernel::kStreamCopy, .bytes = Bytes(80'000'000)};
    CHECK(rotation_sets(copy, Bytes(1 << 20)) == 2);
    const Case read{.kernel = Kernel::kStreamRead, .bytes = Bytes(80'000'000)};
    CHECK(rotation_sets(read, Bytes(1 << 20)) == 4);
}

TEST_CASE("launches of a graph") {
    const auto launches = [](int sets, double us) { return launches_per_graph(sets, time_from_us(us)); };
    CHECK(launches(2, 500.0) == 20);       // 20 launches are 10 ms
    CHECK(launches(153, 4.0) == 7 * 153);  // a rotation is 612 us: seven make 4 ms
    CHECK(launches(1, 2.0) == 2000);       // 4 ms
    CHECK(launches(4883, 2.0) == 4883);    // one rotation is 9.8 ms
    CHECK(launches(2, 5000.0) == 6);       // 20 would take 100 ms, three rotations take 30 ms
    CHECK(launches(100, 1000.0) == 100);   // never less than a rotation
}

TEST_CASE("summary of replays") {
    std::vector<Time> replays;
    for (const int us : {109, 101, 105, 103, 107, 102, 106, 104, 108}) replays.push_back(time_from_us(us));
    const ReplaySummary s = summarise(replays);
    // 101..109: quartiles are the third and the seventh of nine.
    CHECK(s.median == time_from_us(105));
    CHECK(s.min == time_from_us(101));
    CHECK(s.max == time_from_us(109));
    CHECK(s.spread == Approx(4.0 / 105.0));
    CHECK_FALSE(s.settled());
    CHECK(summarise({time_from_us(1), time_from_us(2)}).median == time_from_us(1.5));
    CHECK(summarise(std::vector<Time>(9, time_from_us(3))).settled());
}

TEST_CASE("mistakes of a grid file have places, and come all at once") {
    const std::string text = mistakes_of(
        "schema: kvsim/calibration/1\n"                    // line 1
        "linear:\n"                                        // 2
        "  - form: buffered\n"                             // 3
        "    family: kda\n"                                // 4: no kernels
        "    state_dtype: fp32\n"                          // 5
        "    k_heads: 16\n"                                // 6
        "    v_heads: [24]\n"                              // 7: not a multiple
        "    k_dim: 64\n"                                  // 8: not 128
        "    v_dim: 128\n"                                 // 9
        "    buffer_length: [4]\n"                         // 10
        "    batch: [1]\n"                                 // 11
        "    fill: [4, most]\n"                            // 12: 0..3; no such word
        "    mixed_flush_rows: [B/0]\n"                    // 13
        "    warm_batch: [1]\n"                            // 14: not a key of the buffered form
        "stream_copy: {smallest: 64, largest: 1 KiB}\n");  // 15: no unit
    CAPTURE(text);
    for (const char* place : {":4:", ":7:", ":8:", ":12:", ":13:", ":14:", ":15:"})
        CHECK_THAT(text, ContainsSubstring(place));
    CHECK_THAT(text, ContainsSubstring("linear[0].fill[0]"));
    CHECK_THAT(text, ContainsSubstring("linear[0].fill[1]"));
    CHECK_THAT(mistakes_of("schema: kvsim/calibration/1\nempty: false\n"),
               ContainsSubstring("at least one of"));
    CHECK_THAT(mistakes_of("schema: kvsim/device/1\n"), ContainsSubstring("calibration"));
}
