// Unit conversions are exact, and writing a quantity and reading it back changes nothing.
#include "sim/config/quantity.hpp"

#include <limits>

#include "sim/base/random.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

template <class T>
T value_of(const Parsed<T>& parsed) {
    INFO((parsed.index() == 1 ? std::get<std::string>(parsed) : ""));
    REQUIRE(parsed.index() == 0);
    return std::get<T>(parsed);
}

TEST_CASE("bytes: decimal prefixes are powers of 1000, binary ones of 1024") {
    CHECK(value_of(parse_bytes("512 B")) == Bytes(512));
    CHECK(value_of(parse_bytes("1 kB")) == Bytes(1000));
    CHECK(value_of(parse_bytes("1 KiB")) == Bytes(1024));
    CHECK(value_of(parse_bytes("64 MiB")) == Bytes(67'108'864));
    CHECK(value_of(parse_bytes("143771 MiB")) == Bytes(150'754'820'096));  // 143771 x 1048576
    CHECK(value_of(parse_bytes("141 GB")) == Bytes(141'000'000'000));
    CHECK(value_of(parse_bytes("1.5 GiB")) == Bytes(1'610'612'736));
    CHECK(value_of(parse_bytes("2 TiB")) == Bytes(2'199'023'255'552));
    CHECK(value_of(parse_bytes("0.000000000001 TB")) == Bytes(1));
    CHECK(value_of(parse_bytes("9223372036854775807 B")) == Bytes(std::numeric_limits<std::int64_t>::max()));
    CHECK(value_of(parse_bytes("64MiB")) == Bytes(67'108'864));
    CHECK(value_of(parse_bytes("1e3 B")) == Bytes(1000));
    CHECK(value_of(parse_bytes("-2.5e+1 kB")) == Bytes(-25'000));
}

TEST_CASE("bytes and times must come out whole and within 64 bits") {
    const std::string message = "expected a whole number of bytes below 2^63, got ";
    CHECK(std::get<std::string>(parse_bytes("0.5 B")) == message + "`0.5 B`");
    CHECK(std::get<std::string>(parse_bytes("0.1 KiB")) == message + "`0.1 KiB`");  // 102.4
    CHECK(std::get<std::string>(parse_bytes("9223372036854775808 B")) == message + "`9223372036854775808 B`");
    CHECK(std::get<std::string>(parse_bytes("1e300 B")) == message + "`1e300 B`");
    // 2^63 ps are 9,223,372.04 s.
    CHECK(value_of(parse_time("9223372 s")) == Time(9'223'372'000'000'000'000));
    CHECK(std::get<std::string>(parse_time("9223373 s")) ==
          "expected a whole number of picoseconds below 2^63, got `9223373 s`");
    CHECK(parse_time("0.5 ps").index() == 1);
}

TEST_CASE("times") {
    CHECK(value_of(parse_time("1 ps")) == Time(1));
    CHECK(value_of(parse_time("2 ns")) == Time(2'000));
    CHECK(value_of(parse_time("90 us")) == Time(90'000'000));
    CHECK(value_of(parse_time("5 ms")) == Time(5'000'000'000));
    CHECK(value_of(parse_time("2 s")) == Time(2'000'000'000'000));
    CHECK(value_of(parse_time("3 min")) == Time(180'000'000'000'000));
    CHECK(value_of(parse_time("0.5 h")) == Time(1'800'000'000'000'000));
    CHECK(value_of(parse_time("0.1 us")) == Time(100'000));  // not a double's idea of 0.1
}

TEST_CASE("rates are the nearest doubles") {
    CHECK(value_of(parse_bandwidth("4.8 TB/s")).value() == 4.8e12);
    CHECK(value_of(parse_bandwidth("4800 GB/s")).value() == 4.8e12);
    CHECK(value_of(parse_flop_rate("989.4 TFLOP/s")).value() == 989.4e12);
    CHECK(value_of(parse_flop_rate("66.9 TFLOP/s")).value() == 66.9e12);
    CHECK(value_of(parse_flop_rate("1 PFLOP/s")).value() == 1e15);
    CHECK(value_of(parse_frequency("3.5 /s")).value() == 3.5);
    CHECK(value_of(parse_frequency("3.5 req/s")).value() == 3.5);
    CHECK(value_of(parse_frequency("0.05 /s")).value() == 0.05);
    CHECK(value_of(parse_frequency("-0.5 /s")).value() == -0.5);
}

TEST_CASE("texts that are no quantity") {
    CHECK(std::get<std::string>(parse_time("5")) ==
          "expected a time such as `5 ms`, got `5` without a unit; units: h, min, s, ms, us, ns, ps");
    CHECK(std::get<std::string>(parse_time("5 Ms")) ==
          "expected a time such as `5 ms`, got `5 Ms` with the unit `Ms` (did you mean `s`?); units: h, min, "
          "s, ms, "
          "us, ns, ps");
    for (const char* text : {"", " ", "ms", "5 5 ms", "1.2.3 s", "0x5 s", "nan s", "inf s", "1e s", "--1 s",
                             "010 s", "5 ms ", "1e99999 s", "5,0 s", ".5 s", "+5 s"}) {
        INFO(text);
        CHECK(parse_time(text).index() == 1);
    }
}

TEST_CASE("to_text takes the largest unit that is exact") {
    CHECK(to_text(Bytes(143'771LL << 20)) == "143771 MiB");
    CHECK(to_text(Bytes(141'000'000'000)) == "141 GB");
    CHECK(to_text(Bytes(0)) == "0 B");
    CHECK(to_text(Bytes(1001)) == "1001 B");
    CHECK(to_text(Time(90'000'000)) == "90 us");
    CHECK(to_text(Time(1)) == "1 ps");
    CHECK(to_text(Bandwidth(4.8e12)) == "4.8 TB/s");
    CHECK(to_text(FlopRate(989.4e12)) == "989.4 TFLOP/s");
    CHECK(to_text(Frequency(5.53)) == "5.53 /s");
    CHECK(to_text(Frequency(1e-9)) == "1e-09 /s");
}

TEST_CASE("random quantities survive writing and reading") {
    RandomStream random(1, "quantities");
    for (int i = 0; i < 2000; ++i) {
        const auto whole = static_cast<std::int64_t>(random.bits() >> (1 + random.bits() % 60));
        CHECK(value_of(parse_bytes(to_text(Bytes(whole)))) == Bytes(whole));
        CHECK(value_of(parse_time(to_text(Time(-whole)))) == Time(-whole));
        const double rate = random.log_normal(1e9, 12.0);
        CHECK(value_of(parse_bandwidth(to_text(Bandwidth(rate)))) == Bandwidth(rate));
        CHECK(value_of(parse_flop_rate(to_text(FlopRate(rate)))) == FlopRate(rate));
        CHECK(value_of(parse_frequency(to_text(Frequency(rate)))) == Frequency(rate));
    }
}

}  // namespace
}  // namespace kvsim
