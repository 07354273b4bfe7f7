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

Case verify(int batch, int tokens, int capacity, std::optional<int> fill, int flush_rows) {
    Case c = buffered(batch, capacity, fill, flush_rows);
    c.kernel = Kernel::kLinearVerifyBuffered;
    c.tokens = tokens;
    return c;
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
    CHECK(count(cases, Kernel::kStreamAppend) == 10);  // 2^21 .. 2^30
    // fp32 at 15 batches and 7 warm ones, and at 8 of four further shapes; bf16 at 8, and at 3 of two shapes.
    CHECK(count(cases, Kernel::kLinearRecurrent) == 15 + 7 + 4 * 8 + 8 + 2 * 3);

    // Ring of 16, every fill: 16 fills, 5 flushes, and the mixed numbers of flushing rows {1, 2, B/16, B/4}
    // that are distinct, at least 1 and below B (all B rows is one of the 5 flushes): none at batch 1; 1 at
    // 2; 1, 2 at 4 and 8 (B/4 = 1, 2); 1, 2, B/4 at 16, 24, 32 (B/16 = 1, 1, 2); 1, 2, B/16, B/4 from 48.
    const int every_fill = 13 * (16 + 5) + 0 + 1 + 2 + 2 + 3 * 3 + 6 * 4;
    // Batches 1, 8, 32, 64, 128, 256, 512; of B/16 and B/4 none at 1, B/4 at 8, both at the five others.
    const int formats = 2 * (7 * (5 + 2) + 1 + 5 * 2);
    const int fp32_u = 5 * (3 + 1) + 7 * (3 + 1);
    const int heads = 4 * (6 * (3 + 1) + 1 + 4 * 2);  // without 256
    // Batches 8, 64, 512, B/16 at the last two.
    const int heads_and_formats = 2 * 2 * (3 * (3 + 1) + 2);
    // Rings 4, 8, 24, 32, 64, 128 at batches 1, 8, 64, 256: two fills, one flush; B/C rows at 8, 64, 256 for
    // 4 and 8; at 64 and 256 for 24, 32, 64; at 256 for 128.
    const int rings = 6 * 4 * (2 + 1) + 2 * 3 + 3 * 2 + 1;
    // Two formats, rings of 32, 64 and 128 at batches 1, 8, 64, 128, 256: three fills, one flush; B/C rows
    // from the batch on that is larger than C.
    const int formats_rings = 2 * (3 * 5 * (3 + 1) + 3 + 3 + 2);
    CHECK(count(cases, Kernel::kLinearBuffered) ==
          every_fill + formats + fp32_u + heads + heads_and_formats + rings + formats_rings);

    // T = 2, 3, 5, 8, 9 at six batches of 16/32 heads; T = 5 at four of four shapes; bf16 at T = 2, 5, 8.
    CHECK(count(cases, Kernel::kLinearVerifyStored) == 5 * 6 + 4 * 4 + 3 * 6);

    // T = 5, ring of 16: fills 0..11 and three flushes at 1, 8, 32, 64, 128, 512; B/4 at 8; B/16 and B/4 from
    // 32. T = 8: five fills, two flushes at the same; B/4 from 8. T = 2, 3, 4, 6, 9 without 32: three fills,
    // one flush.
    const int main = 6 * (12 + 3) + 1 + 4 * 2 + 6 * (5 + 2) + 5 + 5 * 5 * (3 + 1);
    // T = 2, 5, 8 at five batches. The last fill is 14, 11, and for T = 8 the 8 that is there already.
    const int verify_formats = 2 * 5 * ((4 + 1) + (4 + 1) + (3 + 1));
    const int verify_fp32_u = 3 * (2 + 1);
    const int verify_heads = 4 * 4 * (2 + 1);
    const int verify_heads_and_formats = 2 * 2 * 3 * (2 + 1);
    const int verify_rings = 2 * 4 * (2 + 1);
    const int verify_formats_rings = 2 * 3 * 5 * (3 + 1);
    CHECK(count(cases, Kernel::kLinearVerifyBuffered) == main + verify_formats + verify_fp32_u +
                                                             verify_heads + verify_heads_and_formats +
                                                             verify_rings + verify_formats_rings);
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
}

TEST_CASE("every case leaves room for its new tokens, and no flush folds nothing") {
    for (const char* file : {"h200.yaml", "smoke.yaml"}) {
        for (const Case& c : load_grid(kGrids + file)) {
            if (!has_ring(c.kernel)) continue;
            const RowPhases phases = row_phases(c, 1);
            for (std::size_t row = 0; row < phases.fill.size(); ++row) {
                REQUIRE(phases.fill[row] + c.tokens <= c.buffer_length);
                REQUIRE(phases.start[row] < c.buffer_length);
                if (phases.flush[row] != 0 && is_verify(c.kernel)) REQUIRE(phases.fill[row] > 0);
            }
        }
    }
}

TEST_CASE("smoke.yaml touches every kernel and every format") {
    const std::vector<Case> cases = load_grid(kGrids + "smoke.yaml");
    std::set<std::pair<Form, StateFormat>> found;
    std::set<RecordFormat> records;
    for (const Case& c : cases) {
        if (!is_linear(c.kernel)) continue;
        found.emplace(form_of(c.kernel), c.shape.state);
        records.insert(c.shape.records);
    }
    for (const Form form : {Form::kRecurrent, Form::kBuffered, Form::kVerifyStored, Form::kVerifyBuffered}) {
        for (const StateFormat state : {StateFormat::kFp32, StateFormat::kBf16, StateFormat::kSplit}) {
            const bool reads_only = form == Form::kBuffered || form == Form::kVerifyBuffered;
            CAPTURE(name(form), name(state));
            CHECK(found.count({form, state}) == (state == StateFormat::kSplit && !reads_only ? 0 : 1));
        }
    }
    CHECK(records.size() == 2);
    CHECK(cases.size() < 50);
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
    SECTION("verify: what is full leaves room for T tokens") {
        // Ring of 16, T = 5: two rows flush 11 records, 22 others are spread over 0..10, each twice.
        const RowPhases mixed = row_phases(verify(24, 5, 16, std::nullopt, 2), 1);
        std::vector<int> rows_at(12);
        for (std::size_t i = 0; i < 24; ++i) {
            rows_at[static_cast<std::size_t>(mixed.fill[i])] += 1;
            CHECK((mixed.fill[i] == 11) == (mixed.flush[i] == 1));
        }
        CHECK(rows_at == std::vector<int>(12, 2));
    }
    SECTION("rings begin anywhere") {
        // 512 draws of 16 values: each misses with (15/16)^512 = 4e-15.
        const RowPhases phases = row_phases(buffered(512, 16, 3, 0), 1);
        CHECK(std::set(phases.start.begin(), phases.start.end()).size() == 16);
        CHECK(*std::min_element(phases.start.begin(), phases.start.end()) == 0);
        CHECK(*std::max_element(phases.start.begin(), phases.start.end()) == 15);
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
    CHECK(mixed.tokens == 1);
    CHECK(mixed.records == RecordFormat::kBf16);
    CHECK_FALSE(mixed.bytes.has_value());
    CHECK_FALSE(mixed.time_us.has_value());

    const ProfileRow copy = describe({.kernel = Kernel::kStreamCopy, .bytes = Bytes(1 << 20)});
    CHECK(copy.bytes == 2 << 20);  // read and written
    CHECK_FALSE(copy.batch.has_value());
    CHECK(describe({.kernel = Kernel::kStreamRead, .bytes = Bytes(1 << 20)}).bytes == 1 << 20);
    // A row of 32 heads: outputs and u of 256 bytes each, 16 keys of 256.
    CHECK(describe({.kernel = Kernel::kStreamAppend, .bytes = Bytes(2 << 20)}).bytes ==
          (2 << 20) + (32 + 32 + 16) * 256);

    const ProfileRow recurrent =
        describe({.kernel = Kernel::kLinearRecurrent, .shape = kShape, .batch = 4, .l2 = L2State::kWarm});
    CHECK(recurrent.l2 == L2State::kWarm);
    CHECK_FALSE(recurrent.buffer_length.has_value());
    CHECK_FALSE(recurrent.flush_rows.has_value());
    CHECK_FALSE(recurrent.records.has_value());

    Case drafts = verify(8, 5, 16, 11, 8);
    drafts.shape.records = RecordFormat::kFp32U;
    const ProfileRow verified = describe(drafts);
    CHECK(verified.kernel == "linear_verify_buffered");
    CHECK(verified.form == Form::kVerifyBuffered);
    CHECK(verified.tokens == 5);
    CHECK(verified.records == RecordFormat::kFp32U);
    CHECK(verified.buffered_tokens == 8 * 11);
}

TEST_CASE("rotations touch 320 MB and four times the L2 of states, and never one set only") {
    // No pool to speak of: states alone decide.
    const auto sets = [](const Case& c, std::int64_t l2) { return rotation_sets(c, {Bytes(l2), Bytes(1)}); };
    Case c{.kernel = Kernel::kLinearRecurrent, .shape = kShape, .batch = 1};
    // A state is 32 x 128 x 128 x 4 = 2,097,152 bytes: 153 of them are 320.9 MB, 152 are 318.8 MB.
    CHECK(sets(c, 50 << 20) == 153);
    // L2 of 126 MiB: 504 MiB in states of 2 MiB.
    CHECK(sets(c, 126 << 20) == 252);
    c.batch = 512;  // one set alone is 1 GiB
    CHECK(sets(c, 50 << 20) == 2);
    c.l2 = L2State::kWarm;
    CHECK(sets(c, 50 << 20) == 1);
    CHECK(sets({.kernel = Kernel::kEmpty}, 50 << 20) == 1);
    // A split state is read by half; stored states are written, too.
    Case split = buffered(1, 16, 0, 0);
    split.shape.state = StateFormat::kSplit;
    CHECK(sets(split, 126 << 20) == 504);
    const Case stored{.kernel = Kernel::kLinearVerifyStored, .shape = kShape, .batch = 1, .tokens = 5};
    CHECK(sets(stored, 126 << 20) == 42);  // (1 + 5) x 2 MiB
    // A copy touches source and destination.
    const Case copy{.kernel = Kernel::kStreamCopy, .bytes = Bytes(80'000'000)};
    CHECK(sets(copy, 1 << 20) == 2);
    const Case read{.kernel = Kernel::kStreamRead, .bytes = Bytes(80'000'000)};
    CHECK(sets(read, 1 << 20) == 4);
}

TEST_CASE("records, inputs and outputs are twice the L2 before a set comes again, if the pool holds it") {
    const RotationLimits h200{Bytes(62'914'560), Bytes(std::int64_t{32} << 30)};
    // A row of 16/32 heads: 16,512 bytes in, 8,192 out, 12,416 per record, here 7 read and one written.
    const std::int64_t others = 16'512 + 8'192 + 8 * 12'416;
    const Case c = buffered(1, 16, 7, 0);
    CHECK(footprint(c).others == Bytes(others));
    CHECK(rotation_sets(c, h200) == (2 * 62'914'560 + others - 1) / others);  // 1015
    CHECK(rotation_sets(buffered(64, 16, 7, 0), h200) == 16);                 // 15.9
    // Of five drafts, with u in fp32: 8 + 5 records of 20,608 bytes.
    Case drafts = verify(4, 5, 16, 8, 0);
    drafts.shape.records = RecordFormat::kFp32U;
    CHECK(footprint(drafts).others == Bytes(4 * (5 * (16'512 + 8'192) + 13 * 20'608)));
    // What a set occupies: states of 2 MiB, rings of 16 records, inputs and outputs.
    const std::int64_t row = 2'097'152 + 16 * 12'416 + 16'512 + 8'192;
    CHECK(footprint(c).pool == Bytes(row));
    CHECK(rotation_sets(c, {h200.l2, Bytes(500 * row + 1)}) == 500);
    CHECK(rotation_sets(c, {h200.l2, Bytes(100 * row)}) == 153);  // the states' rule stands
}

TEST_CASE("the append probe goes on to other records until it has written twice the L2") {
    const RotationLimits h200{Bytes(62'914'560), Bytes(std::int64_t{2} << 30)};
    Case c{.kernel = Kernel::kStreamAppend, .bytes = Bytes(2 << 20)};
    // States of 2 MiB with outputs and rings of 16 x 20,480 bytes: the pool holds 885. Twice the L2 are 6,144
    // times 20,480 bytes: seven rotations.
    CHECK(footprint(c).pool == Bytes(2'097'152 + 16 * 20'480));
    CHECK(rotation_sets(c, h200) == 885);
    CHECK(rotations_to_repeat(c, h200) == 7);
    c.bytes = Bytes(1 << 30);  // two sets, 12 times what 512 rows write
    CHECK(rotation_sets(c, h200) == 2);
    CHECK(rotations_to_repeat(c, h200) == 6);
    // An L2 of 240 MiB would take 24 rotations; a ring has 16 records.
    CHECK(rotations_to_repeat(c, {Bytes(240 << 20), h200.pool}) == 16);
    CHECK(rotations_to_repeat({.kernel = Kernel::kStreamCopy, .bytes = Bytes(1 << 30)}, h200) == 1);
}

TEST_CASE("cases are measured in an order of their own, each once") {
    const std::vector<std::size_t> order = measuring_order(100, 1);
    CHECK(std::set(order.begin(), order.end()).size() == 100);
    CHECK(*std::max_element(order.begin(), order.end()) == 99);
    CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
    CHECK(measuring_order(100, 1) == order);
    CHECK(measuring_order(0, 1).empty());
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

TEST_CASE("what holds clocks down, from NVML's reasons") {
    CHECK(clock_limit(0x0) == ClockLimit::kNone);
    CHECK(clock_limit(0x1 | 0x2 | 0x10 | 0x100) ==
          ClockLimit::kNone);  // idle, set by the user, sync, display
    CHECK(clock_limit(0x4) == ClockLimit::kPower);
    CHECK(clock_limit(0x4 | 0x20) == ClockLimit::kSlowdown);
    for (const std::uint64_t reason : {0x8, 0x20, 0x40, 0x80})
        CHECK(clock_limit(reason) == ClockLimit::kSlowdown);
}

TEST_CASE("a batch of replays has the slowest clocks of its moments, and is better unhindered") {
    const std::vector<Clocks> moments{
        {1980, 3201, ClockLimit::kNone}, {1890, 3201, ClockLimit::kPower}, {std::nullopt, 2619, {}}};
    CHECK(slowest(moments) == Clocks{1890, 2619, ClockLimit::kPower});
    CHECK(slowest(std::vector<Clocks>(3)) == Clocks{});

    ReplayBatch free{summarise({time_from_us(1), time_from_us(2)}), {1980, 3201, ClockLimit::kNone}};
    ReplayBatch capped{summarise(std::vector<Time>(9, time_from_us(3))), {1890, 3201, ClockLimit::kPower}};
    CHECK(better(free, capped));
    CHECK_FALSE(better(capped, free));
    CHECK_FALSE(capped.good());   // settled, but held down
    CHECK_FALSE(free.good());     // not settled
    capped.clocks.limit.reset();  // a driver that does not say
    CHECK(capped.good());
    CHECK(better(capped, free));
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
    const std::string drafts = mistakes_of(
        "schema: kvsim/calibration/1\n"                                                              // line 1
        "linear:\n"                                                                                  // 2
        "  - {form: verify_buffered, family: gdn, state_dtype: split, k_heads: 4, v_heads: [16],\n"  // 3
        "     k_dim: 128, v_dim: 128, batch: [1], tokens: [5, 8], buffer_length: [16],\n"            // 4
        "     fill: [8, 9],\n"     // 5: 9 + 8 > 16
        "     flush_fill: [0],\n"  // 6: nothing to fold
        "     records: fp32}\n"    // 7: bf16, fp32_u
        "  - {form: verify_buffered, family: gdn, state_dtype: fp32, k_heads: 4, v_heads: [16],\n"
        "     k_dim: 128, v_dim: 128, batch: [1],\n"
        "     tokens: [10],\n"        // 10: at most 9
        "     buffer_length: [4],\n"  // 11
        "     fill: [0]}\n"           // 12
        "  - {form: verify_buffered, family: gdn, state_dtype: fp32, k_heads: 4, v_heads: [16],\n"
        "     k_dim: 128, v_dim: 128, batch: [1], tokens: [5],\n"
        "     buffer_length: [4],\n"  // 15: no room for five
        "     fill: [0]}\n"           // 16
        "  - {form: verify_stored, family: gdn, k_heads: 4, v_heads: [16], k_dim: 128, v_dim: 128,\n"
        "     batch: [1], tokens: [2],\n"
        "     state_dtype: split,\n"     // 19: for forms that leave the state alone
        "     buffer_length: [16]}\n");  // 20: it has no ring
    CAPTURE(drafts);
    for (const char* place : {":5:", ":6:", ":7:", ":10:", ":15:", ":19:", ":20:"})
        CHECK_THAT(drafts, ContainsSubstring(place));
    CHECK_THAT(drafts, ContainsSubstring("linear[0].fill[1]"));
    CHECK_THAT(drafts, !ContainsSubstring("linear[0].fill[0]"));

    const std::string heads = mistakes_of(
        "schema: kvsim/calibration/1\n"
        "stream_append: {smallest: 64 KiB, largest: 2 MiB}\n");  // one head of a pair
    CHECK_THAT(heads, ContainsSubstring(":2:") && ContainsSubstring("multiples of 131072 bytes"));
    CHECK_THAT(mistakes_of("schema: kvsim/calibration/1\nempty: false\n"),
               ContainsSubstring("at least one of"));
    CHECK_THAT(mistakes_of("schema: kvsim/device/1\n"), ContainsSubstring("calibration"));
}
