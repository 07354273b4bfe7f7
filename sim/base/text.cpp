#include "sim/base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace kvsim {

namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::string_view without_sign(std::string_view text) {
    return text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
    // Three rows of the usual table: two back (for swaps), one back, current.
    std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
        std::swap(before, last);
        std::swap(last, row);
    }
    return last[b.size()];
}

std::optional<std::string_view> closest(std::string_view text, std::span<const std::string_view> candidates) {
    // A suggestion that shares no letter with the text helps nobody: fewer edits than letters.
    std::size_t best = std::min(std::max<std::size_t>(1, text.size() / 3) + 1, text.size());
    std::optional<std::string_view> found;
    for (const std::string_view candidate : candidates) {
        const std::size_t distance = edit_distance(text, candidate);
        if (distance < best) {
            best = distance;
            found = candidate;
        }
    }
    return found;
}

std::string suggestion(std::string_view text, std::span<const std::string_view> candidates) {
    const std::optional<std::string_view> found = closest(text, candidates);
    return found ? " (did you mean `" + std::string(*found) + "`?)" : "";
}

std::string join(std::span<const std::string_view> parts, std::string_view separator) {
    std::string text;
    for (const std::string_view part : parts) {
        if (!text.empty()) text += separator;
        text += part;
    }
    return text;
}

bool has_leading_zero(std::string_view text) {
    const std::string_view digits = without_sign(text);
    return digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
    if (has_leading_zero(text)) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::optional<double> parse_real(std::string_view text) {
    const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
    if (digits.empty() || !is_digit(digits[0]) || has_leading_zero(text)) return std::nullopt;
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

std::vector<std::string_view> split_cells(std::string_view line) {
    std::vector<std::string_view> cells;
    for (std::size_t begin = 0;;) {
        const std::size_t comma = line.find(',', begin);
        cells.push_back(line.substr(begin, comma == std::string_view::npos ? comma : comma - begin));
        if (comma == std::string_view::npos) return cells;
        begin = comma + 1;
    }
}

}  // namespace kvsim
