// Traces as CSV: Azure 2023 and 2024, BurstGPT. Cells are not quoted.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/text.hpp"
#include "sim/workload/trace_rows.hpp"

namespace kvsim {
namespace {

enum Column : std::size_t { kStamp, kPrompt, kOutput, kColumns };

struct Format {
    std::array<std::string_view, kColumns> names;
    std::optional<Stamp> (*stamp)(std::string_view);
    std::string_view stamp_text;  // what a stamp looks like
};
// Told apart by the name of the column of stamps; the first is meant when there is none.
constexpr std::array<Format, 2> kFormats{
    Format{{"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
           [](std::string_view text) { return parse_stamp(text); },
           "a time such as `2023-11-16 18:15:46.6805900`"},
    Format{{"Timestamp", "Request tokens", "Response tokens"},
           [](std::string_view text) { return parse_elapsed(text, StampUnit::kSeconds); },
           "seconds such as `5` or `61.25`"}};

// A cell and the column, counted from one, at which it starts in its line.
struct Cell {
    std::string_view text;
    std::size_t column = 1;
};

void cut_line(std::string_view line, std::vector<Cell>& cells) {
    cells.clear();
    for (std::size_t start = 0;;) {
        const std::size_t comma = line.find(',', start);
        cells.push_back({line.substr(start, comma - start), start + 1});
        if (comma == std::string_view::npos) return;
        start = comma + 1;
    }
}

// Places of the wanted columns in the header.
struct Header {
    const Format* format = kFormats.data();
    std::array<std::size_t, kColumns> at{};
    std::size_t cells = 0;
};

Header read_header(std::string_view line, TraceMistakes& mistakes) {
    const std::vector<std::string_view> names = split_cells(line);
    Header header;
    header.cells = names.size();
    for (const Format& format : kFormats) {
        if (std::ranges::find(names, format.names[kStamp]) != names.end()) header.format = &format;
    }
    for (std::size_t c = 0; c < kColumns; ++c) {
        const std::string_view name = header.format->names[c];
        const auto found = std::ranges::find(names, name);
        header.at[c] = static_cast<std::size_t>(found - names.begin());
        if (found == names.end()) {
            mistakes.add(1, 1, fmt::format("expected a column `{}`, got `{}`", name, join(names, ",")));
        } else if (const auto twin = std::find(found + 1, names.end(), name); twin != names.end()) {
            mistakes.add(1, static_cast<std::size_t>(twin->data() - line.data()) + 1,
                         fmt::format("column `{}` stands twice", name));
        }
    }
    return header;
}

// A length of at least `min` tokens; nothing, and a mistake, for any other text.
std::optional<std::int64_t> read_tokens(const Cell& cell, std::string_view name, std::int64_t min, int line,
                                        TraceMistakes& mistakes) {
    const std::optional<std::int64_t> tokens = parse_integer(cell.text);
    if (tokens && *tokens >= min && *tokens <= kMaxTraceTokens) return tokens;
    mistakes.add(line, cell.column,
                 fmt::format("{}: expected a whole number of tokens from {} to {}, got `{}`", name, min,
                             kMaxTraceTokens, cell.text));
    return std::nullopt;
}

std::optional<TraceRow> read_row(const std::vector<Cell>& cells, const Header& header, int line,
                                 TraceMistakes& mistakes) {
    if (cells.size() != header.cells) {
        mistakes.add(line, 1,
                     fmt::format("expected {} cells as in the header, got {}", header.cells, cells.size()));
        return std::nullopt;
    }
    const Format& format = *header.format;
    const Cell& stamp_cell = cells[header.at[kStamp]];
    const std::optional<Stamp> stamp = format.stamp(stamp_cell.text);
    if (!stamp) {
        mistakes.add(line, stamp_cell.column,
                     fmt::format("{}: expected {}, got `{}`", format.names[kStamp], format.stamp_text,
                                 stamp_cell.text));
    }
    // An empty prompt cannot be served and no engine accepts one; an empty answer is a failed request, to be
    // dropped.
    const auto prompt = read_tokens(cells[header.at[kPrompt]], format.names[kPrompt], 1, line, mistakes);
    const auto output = read_tokens(cells[header.at[kOutput]], format.names[kOutput], 0, line, mistakes);
    if (!stamp || !prompt || !output) return std::nullopt;
    return TraceRow{*stamp, *prompt, *output, line};
}

}  // namespace

TraceRows read_csv_rows(std::span<const std::string_view> lines, std::size_t limit, TraceMistakes& mistakes) {
    TraceRows trace;
    const Header header = read_header(lines.empty() ? std::string_view() : lines.front(), mistakes);
    mistakes.throw_if_any();
    if (lines.size() < 2) mistakes.add(1, 1, "expected rows after the header, got none");
    const std::size_t end = lines.size() - 1 > limit ? limit + 1 : lines.size();
    trace.rows.reserve(end);
    std::vector<Cell> cells;
    for (std::size_t i = 1; i < end; ++i) {
        cut_line(lines[i], cells);
        if (const auto row = read_row(cells, header, static_cast<int>(i) + 1, mistakes))
            trace.rows.push_back(*row);
    }
    return trace;
}

}  // namespace kvsim
