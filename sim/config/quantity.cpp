#include "sim/config/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/text.hpp"

namespace kvsim {

namespace {

// One unit is factor x 10^exponent of the base unit.
struct Unit {
    std::string_view name;
    std::int64_t factor = 1;
    int exponent = 0;
};

// Largest first, so that to_text can take the first that divides.
constexpr std::array<Unit, 9> kByteUnits{{{"TiB", 1LL << 40, 0},
                                          {"TB", 1, 12},
                                          {"GiB", 1LL << 30, 0},
                                          {"GB", 1, 9},
                                          {"MiB", 1LL << 20, 0},
                                          {"MB", 1, 6},
                                          {"KiB", 1LL << 10, 0},
                                          {"kB", 1, 3},
                                          {"B", 1, 0}}};
constexpr std::array<Unit, 7> kTimeUnits{
    {{"h", 3600, 12}, {"min", 60, 12}, {"s", 1, 12}, {"ms", 1, 9}, {"us", 1, 6}, {"ns", 1, 3}, {"ps", 1, 0}}};
constexpr std::array<Unit, 5> kBandwidthUnits{
    {{"TB/s", 1, 12}, {"GB/s", 1, 9}, {"MB/s", 1, 6}, {"kB/s", 1, 3}, {"B/s", 1, 0}}};
constexpr std::array<Unit, 5> kFlopRateUnits{
    {{"PFLOP/s", 1, 15}, {"TFLOP/s", 1, 12}, {"GFLOP/s", 1, 9}, {"MFLOP/s", 1, 6}, {"FLOP/s", 1, 0}}};
constexpr std::array<Unit, 2> kFrequencyUnits{{{"/s", 1, 0}, {"req/s", 1, 0}}};

// Number and unit of a text. The number is split into a whole mantissa and a power of ten, so that nothing is
// rounded.
struct Split {
    std::string mantissa;  // optional minus, digits
    int exponent = 0;
    std::string number;  // as written
    const Unit* unit = nullptr;
};

struct Grammar {
    std::string_view noun;     // "a time"
    std::string_view example;  // "5 ms"
    std::span<const Unit> units;
};
constexpr Grammar kBytesGrammar{"a size in bytes", "64 MiB", kByteUnits};
constexpr Grammar kTimeGrammar{"a time", "5 ms", kTimeUnits};
constexpr Grammar kBandwidthGrammar{"a bandwidth", "4.8 TB/s", kBandwidthUnits};
constexpr Grammar kFlopRateGrammar{"a FLOP rate", "989.4 TFLOP/s", kFlopRateUnits};
constexpr Grammar kFrequencyGrammar{"a rate", "3.5 /s", kFrequencyUnits};

std::vector<std::string_view> names_of(std::span<const Unit> units) {
    std::vector<std::string_view> names;
    for (const Unit& unit : units) names.push_back(unit.name);
    return names;
}

Parsed<Split> split(std::string_view text, const Grammar& grammar) {
    const std::string expected =
        fmt::format("expected {} such as `{}`, got `{}`", grammar.noun, grammar.example, text);
    double ignored = 0.0;
    const char* const end = std::from_chars(text.data(), text.data() + text.size(), ignored).ptr;
    Split result;
    result.number = std::string(text.data(), end);
    if (!parse_real(result.number)) return expected;

    const std::size_t unit_start = std::min(text.find_first_not_of(' ', result.number.size()), text.size());
    const std::string_view unit = text.substr(unit_start);
    const std::vector<std::string_view> names = names_of(grammar.units);
    if (unit.empty()) return fmt::format("{} without a unit; units: {}", expected, join(names));
    const auto found = std::ranges::find(grammar.units, unit, &Unit::name);
    if (found == grammar.units.end()) {
        return fmt::format("{} with the unit `{}`{}; units: {}", expected, unit, suggestion(unit, names),
                           join(names));
    }
    result.unit = &*found;

    const std::size_t e = result.number.find_first_of("eE");
    std::string mantissa = result.number.substr(0, e);
    if (e != std::string::npos) {
        const std::size_t start = e + (result.number[e + 1] == '+' ? 2 : 1);
        std::from_chars(result.number.data() + start, result.number.data() + result.number.size(),
                        result.exponent);
    }
    if (const std::size_t point = mantissa.find('.'); point != std::string::npos) {
        result.exponent -= static_cast<int>(mantissa.size() - point - 1);
        mantissa.erase(point, 1);
    }
    result.mantissa = std::move(mantissa);
    return result;
}

// mantissa x 10^exponent x unit as an integer; empty when it is not whole or beyond int64.
std::optional<std::int64_t> whole(const Split& s) {
    __extension__ using Wide = __int128;
    constexpr Wide kLimit = std::numeric_limits<std::int64_t>::max();
    const bool negative = s.mantissa.starts_with('-');
    int exponent = s.exponent + s.unit->exponent;
    std::string digits = s.mantissa.substr(negative ? 1 : 0);
    // Trailing zeros of the mantissa are powers of ten: `1000 ps` and `0.50 s`.
    while (digits.size() > 1 && digits.back() == '0') {
        digits.pop_back();
        ++exponent;
    }
    Wide value = 0;
    for (const char c : digits) {
        value = value * 10 + (c - '0');
        if (value > kLimit) return std::nullopt;
    }
    value *= s.unit->factor;
    for (; exponent < 0 && value != 0; ++exponent) {
        if (value % 10 != 0) return std::nullopt;
        value /= 10;
    }
    for (; exponent > 0 && value != 0; --exponent) {
        value *= 10;
        if (value > kLimit) return std::nullopt;
    }
    if (value > kLimit) return std::nullopt;
    return static_cast<std::int64_t>(negative ? -value : value);
}

template <class T>
Parsed<T> parse_whole(std::string_view text, const Grammar& grammar, std::string_view counted) {
    Parsed<Split> parts = split(text, grammar);
    if (auto* message = std::get_if<std::string>(&parts)) return std::move(*message);
    const std::optional<std::int64_t> value = whole(std::get<Split>(parts));
    if (!value) return fmt::format("expected a whole number of {} below 2^63, got `{}`", counted, text);
    return T(*value);
}

template <class T>
Parsed<T> parse_rate(std::string_view text, const Grammar& grammar) {
    Parsed<Split> parts = split(text, grammar);
    if (auto* message = std::get_if<std::string>(&parts)) return std::move(*message);
    const Split& s = std::get<Split>(parts);
    // Leading zeros of `0.5` would read as octal-like; the mantissa is a plain integer here.
    const bool negative = s.mantissa.starts_with('-');
    std::string digits = s.mantissa.substr(negative ? 1 : 0);
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
    const std::optional<double> value =
        parse_real(fmt::format("{}{}e{}", negative ? "-" : "", digits, s.exponent + s.unit->exponent));
    if (!value) return fmt::format("expected {} within the range of numbers, got `{}`", grammar.noun, text);
    return T(*value);
}

std::string whole_to_text(std::int64_t value, std::span<const Unit> units) {
    for (const Unit& unit : units) {
        std::int64_t scale = unit.factor;
        for (int i = 0; i < unit.exponent; ++i) scale *= 10;
        if (value != 0 && value % scale == 0) return fmt::format("{} {}", value / scale, unit.name);
    }
    return fmt::format("{} {}", value, units.back().name);
}

// The first unit in which the number, shortened, still means the same double.
std::string rate_to_text(double value, std::span<const Unit> units, auto parse) {
    for (const Unit& unit : units) {
        double scale = 1.0;
        for (int i = 0; i < unit.exponent; ++i) scale *= 10.0;
        const double scaled = value / scale;
        if (scaled < 1.0 && scale > 1.0) continue;
        const std::string text = fmt::format("{} {}", scaled, unit.name);
        const auto parsed = parse(text);
        const auto* same = std::get_if<0>(&parsed);
        if (same != nullptr && same->value() == value) return text;
    }
    return fmt::format("{} {}", value, units.back().name);
}

}  // namespace

Parsed<Bytes> parse_bytes(std::string_view text) {
    return parse_whole<Bytes>(text, kBytesGrammar, "bytes");
}
Parsed<Time> parse_time(std::string_view text) {
    return parse_whole<Time>(text, kTimeGrammar, "picoseconds");
}
Parsed<Bandwidth> parse_bandwidth(std::string_view text) {
    return parse_rate<Bandwidth>(text, kBandwidthGrammar);
}
Parsed<FlopRate> parse_flop_rate(std::string_view text) {
    return parse_rate<FlopRate>(text, kFlopRateGrammar);
}
Parsed<Frequency> parse_frequency(std::string_view text) {
    return parse_rate<Frequency>(text, kFrequencyGrammar);
}

std::string to_text(Bytes bytes) {
    return whole_to_text(bytes.value(), kByteUnits);
}
std::string to_text(Time time) {
    return whole_to_text(time.value(), kTimeUnits);
}
std::string to_text(Bandwidth rate) {
    return rate_to_text(rate.value(), kBandwidthUnits, parse_bandwidth);
}
std::string to_text(FlopRate rate) {
    return rate_to_text(rate.value(), kFlopRateUnits, parse_flop_rate);
}
std::string to_text(Frequency rate) {
    return rate_to_text(rate.value(), std::span(kFrequencyUnits).first<1>(), parse_frequency);
}

}  // namespace kvsim
