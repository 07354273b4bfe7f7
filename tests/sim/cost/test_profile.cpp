#include "sim/cost/profile.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::testing;

namespace {

// One cell per column, separated by commas.
template <class Cell>
std::string joined(Cell cell) {
    std::string text;
    for (const ProfileColumn& c : profile_columns()) text.append(cell(c)).push_back(',');
    text.pop_back();
    return text;
}
std::string header() {
    return joined([](const ProfileColumn& c) { return std::string(c.name); });
}
std::string line(const ProfileRow& row) {
    return joined([&](const ProfileColumn& c) { return c.format(row); });
}

// A folder with one CSV file.
std::string folder_with(const std::string& name, const std::string& text) {
    const auto folder = std::filesystem::path(KVSIM_BINARY_DIR) / "test_profile" / name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "linear_buffered.csv", std::ios::binary) << text;
    return folder.string();
}

const ProfileRow kRow = linear_row(Form::kBuffered, 32, 8, 5, 2);

}  // namespace

TEST_CASE("a profile reads back what a row says", "[profile]") {
    const std::string folder = folder_with("good", header() + "\n" + line(kRow) + "\n");
    const Profile p = load_profile(folder);
    REQUIRE(p.rows.size() == 1);
    CHECK(p.folder == folder);
    CHECK(p.rows[0].place.file == folder + "/linear_buffered.csv");
    CHECK(p.rows[0].place.line == 2);
    CHECK(line(p.rows[0].row) == line(kRow));
    const LinearLaunch launch = launch_of(p.rows[0].row);
    CHECK(launch.shape == gdn(32));
    CHECK(launch.form == Form::kBuffered);
    const LinearWork& w = launch.work;
    CHECK(w.sequences == 8);
    CHECK(w.new_tokens == 8);
    CHECK(w.buffered_tokens == 40);
    CHECK(w.flushes == 2);
    CHECK(w.flushed_tokens == 2 * (5 + 1));
}

TEST_CASE("rows in mixed phases: those that flush have a full ring", "[profile]") {
    ProfileRow mixed = kRow;
    mixed.fill.reset();
    mixed.buffered_tokens = 50;
    const LinearWork w = launch_of(mixed).work;
    CHECK(w.buffered_tokens == 50);
    CHECK(w.flushed_tokens == 2 * 16);
}

TEST_CASE("verify: T tokens a row, of which a flush folds none", "[profile]") {
    ProfileRow row = kRow;
    row.kernel = "linear_verify_buffered";
    row.form = Form::kVerifyBuffered;
    row.records = RecordFormat::kFp32U;
    row.tokens = 5;
    const Profile p = load_profile(folder_with("verify", header() + "\n" + line(row) + "\n"));
    const LinearLaunch launch = launch_of(p.rows[0].row);
    CHECK(launch.shape.records == RecordFormat::kFp32U);
    CHECK(launch.work.new_tokens == 8 * 5);
    CHECK(launch.work.flushed_tokens == 2 * 5);  // the fill of 5
    row.fill.reset();
    CHECK(launch_of(row).work.flushed_tokens == 2 * (16 - 5));  // mixed: those that have no more room
    row.fill = 12;
    row.buffered_tokens = 8 * 12;  // with five more the ring of 16 runs over
    CHECK_THROWS_WITH(load_profile(folder_with("overfull", header() + "\n" + line(row) + "\n")),
                      ContainsSubstring("buffered_tokens: expected at most 8 rows x 11 records"));
}

TEST_CASE("byte order mark, CRLF, blank last line and missing last newline are no mistakes", "[profile]") {
    CHECK(load_profile(folder_with("crlf", "\xEF\xBB\xBF" + header() + "\r\n" + line(kRow) + "\r\n\r\n"))
              .rows.size() == 1);
    CHECK(load_profile(folder_with("cut", header() + "\n" + line(kRow))).rows.size() == 1);
}

TEST_CASE("columns count by name, and must be exactly the known ones", "[profile]") {
    CHECK_THROWS_WITH(
        load_profile(folder_with("unknown", header() + ",time_usec\n")),
        ContainsSubstring("linear_buffered.csv:1: time_usec: unknown column (did you mean `time_us`?)"));
    std::string missing = header();
    missing.replace(missing.find("batch,"), 6, "");
    CHECK_THROWS_WITH(load_profile(folder_with("missing", missing + "\n")),
                      ContainsSubstring("linear_buffered.csv:1: batch: missing column"));
    CHECK_THROWS_WITH(load_profile(folder_with("twice", header() + ",batch\n")),
                      ContainsSubstring("appears twice"));
    CHECK_THROWS_AS(load_profile(folder_with("empty_file", "")), ConfigError);
    CHECK_THROWS_WITH(load_profile(folder_with("no_rows", header() + "\n")),
                      ContainsSubstring("csv:1: expected rows after the header line"));
}

TEST_CASE("bad rows are refused with line and column, all at once", "[profile]") {
    struct Spoilt {
        void (*change)(ProfileRow&);
        const char* column;  // that must be complained about
    };
    const Spoilt spoilt[] = {
        {[](ProfileRow& r) { r.batch = -1; }, "batch"},
        {[](ProfileRow& r) { r.time_us.reset(); }, "time_us"},
        {[](ProfileRow& r) { r.time_us = 0.0; }, "time_us"},
        {[](ProfileRow& r) { r.time_us = 1e-300; }, "time_us"},
        {[](ProfileRow& r) { r.verified = false; }, "verified"},
        {[](ProfileRow& r) { r.verified.reset(); }, "verified"},
        {[](ProfileRow& r) { r.v_heads.reset(); }, "v_heads"},
        {[](ProfileRow& r) { r.l2.reset(); }, "l2"},
        {[](ProfileRow& r) { r.flush_rows = 9; }, "flush_rows"},  // of a batch of 8
        {[](ProfileRow& r) { r.buffered_tokens.reset(); }, "buffered_tokens"},
        {[](ProfileRow& r) { r.buffered_tokens = 8 * 16; }, "buffered_tokens"},  // no room for the new record
        {[](ProfileRow& r) { r.fill = -2; }, "fill"},  // not what the buffered tokens say
        {[](ProfileRow& r) { r.buffer_length.reset(); }, "buffer_length"},
        {[](ProfileRow& r) { r.records.reset(); }, "records"},
    };
    std::string text = header() + "\n" + line(kRow) + "\n";
    std::vector<std::pair<int, std::string>> expected;
    int number = 3;
    for (const Spoilt& s : spoilt) {
        ProfileRow row = kRow;
        s.change(row);
        text.append(line(row)).push_back('\n');
        expected.emplace_back(number++, s.column);
    }
    text += "1,2,3\n";
    expected.emplace_back(number++, "");
    std::string misspelt = line(kRow);
    misspelt.replace(misspelt.find("fp32"), 4, "fp23");
    text += misspelt;
    expected.emplace_back(number, "state_dtype");

    std::vector<std::pair<int, std::string>> places;
    try {
        load_profile(folder_with("bad_rows", text));
    } catch (const ConfigError& e) {
        for (const Mistake& m : e.mistakes()) places.emplace_back(m.place.line, m.path);
    }
    CHECK(places == expected);
}

TEST_CASE("an absent folder is a mistake with its name", "[profile]") {
    CHECK_THROWS_WITH(load_profile("no/such/folder"), ContainsSubstring("no/such/folder"));
}

TEST_CASE("of decode rows with 32 heads, five batches are held out and nothing else", "[profile]") {
    for (const std::int64_t b : testing::kHeldOutBatches)
        CHECK(held_out(linear_row(Form::kRecurrent, 32, b, 0, 0)));
    for (const std::int64_t b : kFittedBatches)
        CHECK_FALSE(held_out(linear_row(Form::kRecurrent, 32, b, 0, 0)));
    CHECK_FALSE(held_out(probe_row("stream_copy", 24, 1.0)));
}

TEST_CASE("the append probe is read, and left out of fits and validations", "[profile]") {
    const Profile p = load_profile(
        folder_with("append", header() + "\n" + line(probe_row("stream_append", 2'117'632, 2.5)) + "\n"));
    REQUIRE(p.rows.size() == 1);
    CHECK_FALSE(is_linear(p.rows[0].row));
    CHECK_FALSE(usable(p.rows[0].row));
    CHECK(usable(probe_row("stream_read", 2'097'152, 2.5)));
}
