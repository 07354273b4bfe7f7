// Time stamps of traces, read without losing a digit.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/base/units.hpp"

namespace kvsim {

// A point in time (UTC): the difference of two stamps is exact, while picoseconds since 1970 would not fit 64
// bits.
struct Stamp {
    std::int64_t seconds = 0;      // since 1970-01-01
    std::int64_t picoseconds = 0;  // 0 .. 10^12 - 1

    friend constexpr auto operator<=>(const Stamp&, const Stamp&) = default;
};

// `YYYY-MM-DD HH:MM:SS`, with `T` or a space between, then optionally a fraction of up to 12 digits, then
// optionally `Z` or an offset such as `+00:00`. Without an offset the stamp is taken as UTC. Empty when the
// text is anything else or names a day or time that does not exist (leap seconds included).
std::optional<Stamp> parse_stamp(std::string_view text);

// A decimal number of seconds, or of milliseconds, of at most 12 digits before the point; digits beyond a
// picosecond must be zeros. Empty for anything else: a sign, an exponent, NaN.
enum class StampUnit : std::uint8_t { kSeconds, kMilliseconds };
std::optional<Stamp> parse_elapsed(std::string_view text, StampUnit unit);

// later - earlier; empty when that is beyond the range of Time (106 days).
std::optional<Time> difference(const Stamp& later, const Stamp& earlier);

}  // namespace kvsim
