// Quantities: exact time, rounding, and the border of its range.
#include "sim/base/units.hpp"

#include <limits>
#include <type_traits>

#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
    a + b;
};
template <class A, class B>
concept Divisible = requires(A a, B b) {
    a / b;
};

TEST_CASE("arithmetic without a physical meaning does not compile") {
    STATIC_REQUIRE(Addable<Time, Time>);
    STATIC_REQUIRE_FALSE(Addable<Time, Bytes>);
    STATIC_REQUIRE_FALSE(Addable<Time, std::int64_t>);
    STATIC_REQUIRE(Divisible<Bytes, Bandwidth>);
    STATIC_REQUIRE_FALSE(Divisible<Bytes, FlopRate>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<double, Bandwidth>);
}

TEST_CASE("times are whole picoseconds, rounded to nearest") {
    CHECK(time_from_seconds(1.0) == Time(1'000'000'000'000));
    CHECK(time_from_us(0.53) == Time(530'000));
    CHECK(time_from_seconds(1.6e-12) == Time(2));
    CHECK(time_from_seconds(-1.6e-12) == Time(-2));
    CHECK(to_seconds(Time(1'500'000'000'000)) == 1.5);
    CHECK(to_ms(Time(1'500'000'000)) == Approx(1.5));
    CHECK(to_us(Time(1'500'000)) == Approx(1.5));
}

TEST_CASE("times beyond the range and times that are none are refused") {
    CHECK_NOTHROW(time_from_seconds(9.1e6));  // 105 days
    CHECK_THROWS_AS(time_from_seconds(9.3e6), InvariantError);
    CHECK_THROWS_AS(time_from_seconds(-9.3e6), InvariantError);
    CHECK_THROWS_AS(time_from_seconds(std::numeric_limits<double>::quiet_NaN()), InvariantError);
    CHECK_THROWS_AS(Bytes(1) / Bandwidth(0.0), InvariantError);
}

TEST_CASE("work divided by rate") {
    CHECK(Bytes(4'800'000'000'000) / Bandwidth(4.8e12) == Time(1'000'000'000'000));
    CHECK(Flops(989'400) / FlopRate(989.4e12) == Time(1000));
    CHECK(Bytes(3) / Bytes(2) == 1.5);
}

}  // namespace
}  // namespace kvsim
