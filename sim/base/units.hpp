// Quantities with types: time, bytes, FLOPs and their rates. Arithmetic that makes no physical sense does not
// compile.
//
// Time is an integer count of picoseconds (range +-106 days) so that sums are exact and events have a total
// order.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <type_traits>

#include "sim/base/check.hpp"

namespace kvsim {

// A value of one dimension. Rep is int64 for what is counted, double for rates.
template <class Dimension, class Rep>
class Quantity {
  public:
    constexpr Quantity() = default;
    constexpr explicit Quantity(Rep value) : value_(value) {}
    constexpr Rep value() const { return value_; }

    friend constexpr auto operator<=>(const Quantity&, const Quantity&) = default;
    // Counts that leave 64 bits are a broken invariant, never another number.
    friend constexpr Quantity operator+(Quantity a, Quantity b) {
        if constexpr (std::is_floating_point_v<Rep>) return Quantity(a.value_ + b.value_);
        Rep sum{};
        KVSIM_CHECK(!__builtin_add_overflow(a.value_, b.value_, &sum), "a sum beyond 64 bits");
        return Quantity(sum);
    }
    friend constexpr Quantity operator-(Quantity a, Quantity b) {
        if constexpr (std::is_floating_point_v<Rep>) return Quantity(a.value_ - b.value_);
        Rep difference{};
        KVSIM_CHECK(!__builtin_sub_overflow(a.value_, b.value_, &difference), "a difference beyond 64 bits");
        return Quantity(difference);
    }
    friend constexpr Quantity operator*(Quantity a, Rep k) {
        if constexpr (std::is_floating_point_v<Rep>) return Quantity(a.value_ * k);
        Rep product{};
        KVSIM_CHECK(!__builtin_mul_overflow(a.value_, k, &product), "a product beyond 64 bits");
        return Quantity(product);
    }
    friend constexpr Quantity operator*(Rep k, Quantity a) { return a * k; }
    friend constexpr double operator/(Quantity a, Quantity b) {
        return static_cast<double>(a.value_) / static_cast<double>(b.value_);
    }
    constexpr Quantity& operator+=(Quantity b) { return *this = *this + b; }
    constexpr Quantity& operator-=(Quantity b) { return *this = *this - b; }

  private:
    Rep value_{};
};

using Time = Quantity<struct TimeDimension, std::int64_t>;      // picoseconds
using Bytes = Quantity<struct BytesDimension, std::int64_t>;    // bytes
using Flops = Quantity<struct FlopsDimension, std::int64_t>;    // a multiply-add counts two
using Bandwidth = Quantity<struct BandwidthDimension, double>;  // bytes per second
using FlopRate = Quantity<struct FlopRateDimension, double>;    // FLOP per second
using Frequency = Quantity<struct FrequencyDimension, double>;  // per second

inline constexpr double kPicosecondsPerSecond = 1e12;

// Rounds to the nearest picosecond. Throws InvariantError on NaN or beyond the range.
inline Time time_from_seconds(double seconds) {
    const double ps = seconds * kPicosecondsPerSecond;
    KVSIM_CHECK(std::abs(ps) < 9.2e18, "time beyond the range of picoseconds: {} s", seconds);
    // std::llround(ps), inline: halves away from zero; the rest is exact.
    const auto whole = static_cast<std::int64_t>(ps);
    const double rest = ps - static_cast<double>(whole);
    return Time(whole + (rest >= 0.5 ? 1 : 0) - (rest <= -0.5 ? 1 : 0));
}
inline Time time_from_us(double us) {
    return time_from_seconds(us * 1e-6);
}
constexpr double to_seconds(Time t) {
    return static_cast<double>(t.value()) / kPicosecondsPerSecond;
}
constexpr double to_ms(Time t) {
    return static_cast<double>(t.value()) * 1e-9;
}
constexpr double to_us(Time t) {
    return static_cast<double>(t.value()) * 1e-6;
}

inline Time operator/(Bytes bytes, Bandwidth rate) {
    return time_from_seconds(static_cast<double>(bytes.value()) / rate.value());
}
inline Time operator/(Flops flops, FlopRate rate) {
    return time_from_seconds(static_cast<double>(flops.value()) / rate.value());
}

}  // namespace kvsim
