// Time stamps: exact to the last digit, and nothing accepted that is not one.
#include "sim/workload/stamp.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("stamps are read to the picosecond") {
    // 2023-11-16 is day 19677 of the epoch: 53 years of 365 days, 13 leap days (1972 .. 2020), and in 2023
    // 304 days to the end of October and 15 more: 19345 + 13 + 319 = 19677.
    const std::optional<Stamp> stamp = parse_stamp("2023-11-16 18:15:46.6805900");
    REQUIRE(stamp);
    CHECK(stamp->seconds == 19677LL * 86400 + 18 * 3600 + 15 * 60 + 46);
    CHECK(stamp->picoseconds == 680'590'000'000);
    CHECK(parse_stamp("1970-01-01 00:00:00") == Stamp{0, 0});
    CHECK(parse_stamp("1970-01-01T00:00:01Z") == Stamp{1, 0});
    CHECK(parse_stamp("1969-12-31 23:59:59.5") == Stamp{-1, 500'000'000'000});
    CHECK(parse_stamp("1970-01-01 00:00:00.000000000001") == Stamp{0, 1});
}

TEST_CASE("offsets move a stamp to UTC") {
    CHECK(parse_stamp("2024-05-10 00:00:00.009930+00:00") == parse_stamp("2024-05-10 00:00:00.00993"));
    CHECK(parse_stamp("2024-05-10 00:00:00+00:00") == parse_stamp("2024-05-10 00:00:00"));
    CHECK(parse_stamp("2024-05-10 01:30:00+01:30") == parse_stamp("2024-05-10 00:00:00"));
    CHECK(parse_stamp("2024-05-09 17:00:00-07:00") == parse_stamp("2024-05-10 00:00:00"));
}

TEST_CASE("a leap day exists in leap years only") {
    CHECK(parse_stamp("2024-02-29 00:00:00"));
    CHECK_FALSE(parse_stamp("2023-02-29 00:00:00"));
    CHECK(parse_stamp("2000-02-29 00:00:00"));
    CHECK_FALSE(parse_stamp("1900-02-29 00:00:00"));
}

TEST_CASE("anything else is no stamp") {
    for (const char* text : {"",
                             "nan",
                             "NaN",
                             "12.5",
                             "2023-11-16",
                             "2023-11-16 18:15",
                             "2023-11-16 18:15:46.",
                             "2023-11-16 18:15:46,5",
                             "2023-11-16 24:00:00",
                             "2023-11-16 18:60:00",
                             "2023-11-16 18:15:60",
                             "2023-13-01 00:00:00",
                             "2023-00-10 00:00:00",
                             "2023-11-31 00:00:00",
                             "2023-11-16  18:15:46",
                             " 2023-11-16 18:15:46",
                             "2023-11-16 18:15:46 ",
                             "2023-11-16 18:15:46.6805900x",
                             "2023-11-16 18:15:46+0000",
                             "2023-11-16 18:15:46+25:00",
                             "2023-11-16 18:15:46Z+00:00",
                             "-2023-11-16 18:15:46",
                             "2023-11-16 18:15:46.0000000000001"}) {
        INFO("`" << text << "`");
        CHECK_FALSE(parse_stamp(text));
    }
}

TEST_CASE("differences are exact, and refused beyond the range of time") {
    const Stamp a{100, 999'999'999'999};
    const Stamp b{102, 1};
    CHECK(difference(b, a) == Time(1'000'000'000'002));
    CHECK(difference(a, b) == Time(-1'000'000'000'002));
    CHECK(difference({100 * 86400, 0}, {0, 0}) == Time(100LL * 86400 * 1'000'000'000'000));
    CHECK_FALSE(difference({107 * 86400, 0}, {0, 0}));
    CHECK_FALSE(difference({0, 0}, {107 * 86400, 0}));
}

}  // namespace
}  // namespace kvsim
