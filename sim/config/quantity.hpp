// Quantities as text: a decimal number and a unit, as in `64 MiB`, `5 ms`, `4.8 TB/s`, `989.4 TFLOP/s`, `5.53
// req/s`.
//
// Conversions are exact: what is counted (bytes, picoseconds) must come out whole, and a rate is the double
// nearest to the number written. Decimal prefixes are powers of 1000, KiB to TiB powers of 1024.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "sim/base/units.hpp"

namespace kvsim {

// The quantity, or what is wrong with the text: "expected ..., got ...".
template <class T>
using Parsed = std::variant<T, std::string>;

Parsed<Bytes> parse_bytes(std::string_view text);
Parsed<Time> parse_time(std::string_view text);
Parsed<Bandwidth> parse_bandwidth(std::string_view text);
Parsed<FlopRate> parse_flop_rate(std::string_view text);
Parsed<Frequency> parse_frequency(std::string_view text);

// The inverse: parse(to_text(x)) == x, in the largest unit that gives a short number.
std::string to_text(Bytes bytes);
std::string to_text(Time time);
std::string to_text(Bandwidth rate);
std::string to_text(FlopRate rate);
std::string to_text(Frequency rate);

}  // namespace kvsim
