// Text helpers for messages and for reading numbers: no locale, nothing accepted that a reader might take
// differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

// Edits (insert, delete, replace, swap of neighbours) that turn a into b: optimal string alignment distance.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that is most likely meant by a misspelt `text`: at most max(1, length/3) edits away, the
// first of equals.
std::optional<std::string_view> closest(std::string_view text, std::span<const std::string_view> candidates);

// " (did you mean `x`?)", or nothing when no candidate is close.
std::string suggestion(std::string_view text, std::span<const std::string_view> candidates);

// "a, b, c"
std::string join(std::span<const std::string_view> parts, std::string_view separator = ", ");

// Decimal integer: the whole text, an optional minus, no leading zero, within int64.
std::optional<std::int64_t> parse_integer(std::string_view text);

// Decimal number such as 3, -0.5, 1e-3: the whole text, finite, rounded to nearest; no leading zero but in
// 0.5, no hex, no nan or inf.
std::optional<double> parse_real(std::string_view text);

// True for an optional sign and then two digits or more of which the first is 0: some readers take that as
// octal.
bool has_leading_zero(std::string_view text);

// The cells of a line of CSV without quotes: what stands between its commas, at least one, empty ones
// included. Views of `line`.
std::vector<std::string_view> split_cells(std::string_view line);

}  // namespace kvsim
