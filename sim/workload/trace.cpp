// Reads request traces of the Azure 2023 and 2024 formats, as published.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/base/text.hpp"
#include "sim/workload/stamp.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {
namespace {

// More mistakes than this are counted, not listed: a file of another format would print itself.
constexpr std::size_t kMaxListed = 20;
// Lengths beyond this are slips of the pen; the bound keeps sums over any trace within 64 bits.
constexpr std::int64_t kMaxTokens = 1'000'000'000;

enum Column : std::size_t { kStamp, kPrompt, kOutput, kColumns };
constexpr std::array<std::string_view, kColumns> kColumnNames{"TIMESTAMP", "ContextTokens",
                                                              "GeneratedTokens"};

class MistakeList {
  public:
    explicit MistakeList(const std::string& file) : file_(file) {}

    void add(int line, std::size_t column, std::string message) {
        if (listed_.size() < kMaxListed) {
            listed_.push_back({{file_, line, static_cast<int>(column)}, "", std::move(message)});
        } else {
            ++unlisted_;
        }
    }
    void throw_if_any() {
        if (listed_.empty()) return;
        if (unlisted_ > 0) {
            Mistake rest;
            rest.place.file = file_;
            rest.message = fmt::format("{} more mistakes", unlisted_);
            listed_.push_back(std::move(rest));
        }
        throw ConfigError(std::move(listed_));
    }

  private:
    std::string file_;
    std::vector<Mistake> listed_;
    std::int64_t unlisted_ = 0;
};

// A cell and the column, counted from one, at which it starts in its line.
struct Cell {
    std::string_view text;
    std::size_t column = 1;
};

void split_cells(std::string_view line, std::vector<Cell>& cells) {
    cells.clear();
    for (std::size_t start = 0;;) {
        const std::size_t comma = line.find(',', start);
        cells.push_back({line.substr(start, comma - start), start + 1});
        if (comma == std::string_view::npos) return;
        start = comma + 1;
    }
}

// Lines without their ends (LF or CRLF). Blank lines at the end of the file and a byte-order mark are no
// content.
std::vector<std::string_view> split_lines(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        lines.push_back(line);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    return lines;
}

std::string read_file(const std::string& path) {
    const auto fail = [&](std::string_view reason) {
        throw_mistake({path, 0, 0}, "", fmt::format("cannot read the trace: {}", reason));
    };
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) fail("it is a folder");
    std::ifstream file(path, std::ios::binary);
    if (!file) fail(std::strerror(errno));
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (file.bad()) fail(std::strerror(errno));
    return text;
}

// Places of the wanted columns in the header.
struct Header {
    std::array<std::size_t, kColumns> at{};
    std::size_t cells = 0;
};

Header read_header(std::string_view line, MistakeList& mistakes) {
    std::vector<Cell> cells;
    split_cells(line, cells);
    std::vector<std::string_view> names;
    for (const Cell& cell : cells) names.push_back(cell.text);
    Header header;
    header.cells = cells.size();
    for (std::size_t c = 0; c < kColumns; ++c) {
        const auto found = std::find(names.begin(), names.end(), kColumnNames[c]);
        header.at[c] = static_cast<std::size_t>(found - names.begin());
        if (found == names.end()) {
            mistakes.add(1, 1,
                         fmt::format("expected a column `{}`, got `{}`", kColumnNames[c], join(names, ",")));
        } else if (const auto twin = std::find(found + 1, names.end(), kColumnNames[c]);
                   twin != names.end()) {
            mistakes.add(1, cells[static_cast<std::size_t>(twin - names.begin())].column,
                         fmt::format("column `{}` stands twice", kColumnNames[c]));
        }
    }
    return header;
}

// A length of at least `min` tokens; nothing, and a mistake, for any other text.
std::optional<std::int64_t> read_tokens(const Cell& cell, Column column, std::int64_t min, int line,
                                        MistakeList& mistakes) {
    const std::optional<std::int64_t> tokens = parse_integer(cell.text);
    if (tokens && *tokens >= min && *tokens <= kMaxTokens) return tokens;
    mistakes.add(line, cell.column,
                 fmt::format("{}: expected a whole number of tokens from {} to {}, got `{}`",
                             kColumnNames[column], min, kMaxTokens, cell.text));
    return std::nullopt;
}

struct Row {
    Stamp stamp;
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    int line = 0;
};

std::optional<Row> read_row(const std::vector<Cell>& cells, const Header& header, int line,
                            MistakeList& mistakes) {
    if (cells.size() != header.cells) {
        mistakes.add(line, 1,
                     fmt::format("expected {} cells as in the header, got {}", header.cells, cells.size()));
        return std::nullopt;
    }
    const Cell& stamp_cell = cells[header.at[kStamp]];
    const std::optional<Stamp> stamp = parse_stamp(stamp_cell.text);
    if (!stamp) {
        mistakes.add(line, stamp_cell.column,
                     fmt::format("{}: expected a time such as `2023-11-16 18:15:46.6805900`, got `{}`",
                                 kColumnNames[kStamp], stamp_cell.text));
    }
    // An empty prompt cannot be served and no engine accepts one; an empty answer is a failed request, to be
    // dropped.
    const auto prompt = read_tokens(cells[header.at[kPrompt]], kPrompt, 1, line, mistakes);
    const auto output = read_tokens(cells[header.at[kOutput]], kOutput, 0, line, mistakes);
    if (!stamp || !prompt || !output) return std::nullopt;
    return Row{*stamp, *prompt, *output, line};
}

std::vector<Row> read_rows(const std::vector<std::string_view>& lines, const Header& header,
                           MistakeList& mistakes) {
    std::vector<Row> rows;
    rows.reserve(lines.size());
    std::vector<Cell> cells;
    for (std::size_t i = 1; i < lines.size(); ++i) {
        const int line = static_cast<int>(i) + 1;
        split_cells(lines[i], cells);
        if (const std::optional<Row> row = read_row(cells, header, line, mistakes)) rows.push_back(*row);
    }
    return rows;
}

}  // namespace

ArrivalList read_trace(const std::string& path) {
    const std::string text = read_file(path);
    const std::vector<std::string_view> lines = split_lines(text);
    MistakeList mistakes(path);
    const Header header = read_header(lines.empty() ? std::string_view() : lines.front(), mistakes);
    mistakes.throw_if_any();
    std::vector<Row> rows = read_rows(lines, header, mistakes);
    if (lines.size() < 2) mistakes.add(1, 1, "expected rows after the header, got none");
    mistakes.throw_if_any();

    ArrivalList list;
    list.rows_read = static_cast<std::int64_t>(rows.size());
    for (std::size_t i = 1; i < rows.size(); ++i)
        list.inversions += rows[i].stamp < rows[i - 1].stamp ? 1 : 0;
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.stamp < b.stamp; });
    list.arrivals.reserve(rows.size());
    for (const Row& row : rows) {
        if (row.output_tokens == 0) {
            ++list.dropped_zero_output;
            continue;
        }
        const std::optional<Time> time = difference(row.stamp, rows.front().stamp);
        if (!time) {
            mistakes.add(row.line, 1,
                         "more than 106 days after the first row, which is beyond the simulated time");
            continue;
        }
        list.arrivals.push_back({*time, row.prompt_tokens, row.output_tokens});
    }
    mistakes.throw_if_any();
    return list;
}

}  // namespace kvsim
