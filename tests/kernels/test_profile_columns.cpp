#include "kernels/profile_columns.hpp"

#include <set>

#include "tests/support/catch.hpp"

using namespace kvsim;

namespace {

// A row with every cell filled.
ProfileRow full_row() {
    ProfileRow row;
    row.kernel = "linear_buffered";
    row.family = Family::kGdn;
    row.form = Form::kBuffered;
    row.k_heads = 16;
    row.v_heads = 48;
    row.k_dim = 128;
    row.v_dim = 64;
    row.state_dtype = StateFormat::kSplit;
    row.records = RecordFormat::kFp32U;
    row.batch = 512;
    row.buffer_length = 32;
    row.fill = 31;
    row.buffered_tokens = 15872;
    row.flush_rows = 7;
    row.tokens = 9;
    row.bytes = 4'294'967'296;  // beyond 32 bits
    row.l2 = L2State::kWarm;
    row.sets = 3392;
    row.time_us = 528.125;
    row.time_min_us = 0.5;
    row.time_max_us = 1675.63;
    row.repeats = 9;
    row.launches = 160;
    row.cupti_us = 2.048;
    row.dram_read_bytes = 0;  // a value, not an empty cell
    row.dram_write_bytes = 12345678901;
    row.sm_mhz = 1980;
    row.clock_limit = ClockLimit::kPower;
    row.verified = false;
    row.max_error = 1.25e-05;
    return row;
}

}  // namespace

TEST_CASE("column names are those that readers ask for, once each") {
    std::set<std::string_view> names;
    for (const ProfileColumn& column : profile_columns()) {
        CAPTURE(column.name);
        CHECK(names.insert(column.name).second);
        CHECK_FALSE(column.help.empty());
    }
    for (const char* name : {"family",
                             "form",
                             "k_heads",
                             "v_heads",
                             "k_dim",
                             "v_dim",
                             "state_dtype",
                             "records",
                             "batch",
                             "buffer_length",
                             "fill",
                             "flush_rows",
                             "tokens",
                             "l2",
                             "time_us",
                             "cupti_us",
                             "dram_read_bytes",
                             "dram_write_bytes",
                             "clock_limit",
                             "verified"}) {
        CAPTURE(name);
        CHECK(names.count(name) == 1);
    }
    CHECK(names.size() == 30);  // the members of ProfileRow
}

TEST_CASE("every column writes its own member and reads it back") {
    const ProfileRow row = full_row();
    for (const ProfileColumn& column : profile_columns()) {
        CAPTURE(column.name);
        const std::string text = column.format(row);
        CHECK_FALSE(text.empty());
        ProfileRow copy;
        REQUIRE(column.parse(copy, text));
        CHECK(column.format(copy) == text);
        // Only this column: all others stay as they were.
        for (const ProfileColumn& other : profile_columns()) {
            if (other.name != column.name) CHECK(other.format(copy) == other.format(ProfileRow{}));
        }
    }
}

TEST_CASE("a row survives writing and reading, value by value") {
    const ProfileRow row = full_row();
    ProfileRow copy;
    for (const ProfileColumn& column : profile_columns()) REQUIRE(column.parse(copy, column.format(row)));
    CHECK(copy.kernel == row.kernel);
    CHECK(copy.family == row.family);
    CHECK(copy.form == row.form);
    CHECK(copy.state_dtype == row.state_dtype);
    CHECK(copy.records == row.records);
    CHECK(copy.l2 == row.l2);
    CHECK(copy.clock_limit == row.clock_limit);
    CHECK(copy.bytes == row.bytes);
    CHECK(copy.dram_read_bytes == row.dram_read_bytes);
    CHECK(copy.verified == row.verified);
    // Six digits hold these values exactly.
    CHECK(copy.time_us == row.time_us);
    CHECK(copy.time_max_us == row.time_max_us);
    CHECK(copy.max_error == row.max_error);
}

TEST_CASE("an empty cell is an empty member, and clears an old one") {
    for (const ProfileColumn& column : profile_columns()) {
        CAPTURE(column.name);
        CHECK(column.format(ProfileRow{}).empty());
        ProfileRow row = full_row();
        if (column.name == "kernel") {
            CHECK_FALSE(column.parse(row, ""));  // every row has a kernel
            continue;
        }
        CHECK(column.parse(row, ""));
        CHECK(column.format(row).empty());
    }
}

TEST_CASE("what is not a value of the column is refused") {
    const auto refuses = [](std::string_view name, std::string_view text) {
        for (const ProfileColumn& column : profile_columns()) {
            ProfileRow row;
            if (column.name == name) return !column.parse(row, text);
        }
        return false;
    };
    CHECK(refuses("batch", "12.5"));
    CHECK(refuses("batch", "12 "));
    CHECK(refuses("batch", "twelve"));
    CHECK(refuses("batch", "99999999999999999999"));
    CHECK(refuses("time_us", "nan"));
    CHECK(refuses("time_us", "inf"));
    CHECK(refuses("time_us", "1.5us"));
    CHECK(refuses("verified", "1"));
    CHECK(refuses("family", "gdn2"));
    CHECK(refuses("l2", "hot"));
    CHECK(refuses("records", "fp32"));
    CHECK(refuses("clock_limit", "true"));
}
