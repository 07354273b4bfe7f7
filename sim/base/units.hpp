// Quantities with types: time, bytes, FLOPs and their rates. Arithmetic that makes no physical sense does not compile.
//
// Time is an integer count of picoseconds (range +-106 days) so that sums are exact and events have a total order.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

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
    friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
    friend constexpr Quantity operator*(Quantity a, Rep k) { return Quantity(a.value_ * k); }
    friend constexpr Quantity operator*(Rep k, Quantity a) { return Quantity(k * a.value_); }
    friend constexpr double operator/(Quantity a, Quantity b) {
        return static_cast<double>(a.value_) / static_cast<double>(b.value_);
    }
    constexpr Quantity& operator+=(Quantity b) { return value_ += b.value_, *this; }
    constexpr Quantity& operator-=(Quantity b) { return value_ -= b.value_, *this; }

  private:
    Rep value_{};
};

using Time = Quantity<struct TimeDimension, std::int64_t>;               // picoseconds
using Bytes = Quantity<struct BytesDimension, std::int64_t>;             // bytes
using Flops = Quantity<struct FlopsDimension, std::int64_t>;             // a multiply-add counts two
using Bandwidth = Quantity<struct BandwidthDimension, double>;           // bytes per second
using FlopRate = Quantity<struct FlopRateDimension, double>;             // FLOP per second
using Frequency = Quantity<struct FrequencyDimension, double>;           // per second

inline constexpr double kPicosecondsPerSecond = 1e12;

// Rounds to the nearest picosecond. Throws InvariantError on NaN or beyond the range.
inline Time time_from_seconds(double seconds) {
    const double ps = seconds * kPicosecondsPerSecond;
    KVSIM_CHECK(std::abs(ps) < 9.2e18, "time beyond the range of picoseconds: {} s", seconds);
    return Time(std::llround(ps));
}
inline Time time_from_us(double us) { return time_from_seconds(us * 1e-6); }
constexpr double to_seconds(Time t) { return static_cast<double>(t.value()) / kPicosecondsPerSecond; }
constexpr double to_ms(Time t) { return static_cast<double>(t.value()) * 1e-9; }
constexpr double to_us(Time t) { return static_cast<double>(t.value()) * 1e-6; }

inline Time operator/(Bytes bytes, Bandwidth rate) {
    return time_from_seconds(static_cast<double>(bytes.value()) / rate.value());
}
inline Time operator/(Flops flops, FlopRate rate) {
    return time_from_seconds(static_cast<double>(flops.value()) / rate.value());
}

}  // namespace kvsim
