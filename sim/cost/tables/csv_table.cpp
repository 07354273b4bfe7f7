#include "sim/cost/tables/csv_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "sim/base/check.hpp"
#include "sim/base/file.hpp"
#include "sim/base/text.hpp"

namespace kvsim {

CsvTable::CsvTable(std::string file, std::vector<std::string_view> columns, std::vector<Mistake>& mistakes)
    : file_(std::move(file)), columns_(std::move(columns)), mistakes_(mistakes) {
    read();
}

void CsvTable::read() {
    std::string content;
    try {
        content = read_csv_file(file_);
    } catch (const ConfigError& error) {
        mistakes_.insert(mistakes_.end(), error.mistakes().begin(), error.mistakes().end());
        return;
    }
    std::vector<std::size_t> order;  // column of each cell
    int number = 0;
    for (const std::string_view text : split_lines(content)) {
        ++number;
        if (text.empty()) continue;
        if (order.empty()) {
            if (!read_header(text, order)) return;
            continue;
        }
        const std::vector<std::string_view> cells = split_cells(text);
        if (cells.size() != order.size()) {
            note(number, "", fmt::format("expected {} cells, got {}", order.size(), cells.size()));
            continue;
        }
        Row row{number, std::vector<std::string>(columns_.size())};
        for (std::size_t i = 0; i < cells.size(); ++i) row.cells[order[i]] = cells[i];
        rows_.push_back(std::move(row));
    }
    if (rows_.empty()) note(1, "", "expected a header line and rows, got none");
}

bool CsvTable::read_header(std::string_view text, std::vector<std::size_t>& order) {
    const std::size_t before = mistakes_.size();
    for (const std::string_view cell : split_cells(text)) {
        const auto found = std::find(columns_.begin(), columns_.end(), cell);
        const auto column = static_cast<std::size_t>(found - columns_.begin());
        if (found == columns_.end()) {
            note(1, cell, fmt::format("unknown column{}", suggestion(cell, columns_)));
        } else if (std::find(order.begin(), order.end(), column) != order.end()) {
            note(1, cell, "column appears twice");
        } else {
            order.push_back(column);
        }
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        if (std::find(order.begin(), order.end(), i) == order.end()) note(1, columns_[i], "missing column");
    }
    return mistakes_.size() == before;
}

void CsvTable::note(int line, std::string_view column, std::string message) const {
    Mistake mistake;
    mistake.place.file = file_;
    mistake.place.line = line;
    mistake.path = column;
    mistake.message = std::move(message);
    mistakes_.push_back(std::move(mistake));
}

std::size_t CsvTable::index(std::string_view column) const {
    const auto found = std::find(columns_.begin(), columns_.end(), column);
    KVSIM_CHECK(found != columns_.end(), "{} has no column {}", file_, column);
    return static_cast<std::size_t>(found - columns_.begin());
}

std::string_view CsvTable::text(std::size_t row, std::string_view column) const {
    return rows_[row].cells[index(column)];
}

std::int64_t CsvTable::positive_integer(std::size_t row, std::string_view column, std::int64_t most) const {
    const std::int64_t value = natural(row, column, most);
    if (value > 0) return value;
    if (text(row, column) == "0") note(rows_[row].line, column, "expected a positive integer, got `0`");
    return 1;
}

std::int64_t CsvTable::natural(std::size_t row, std::string_view column, std::int64_t most) const {
    const std::optional<std::int64_t> value = parse_integer(text(row, column));
    if (value && *value >= 0 && *value <= most) return *value;
    note(rows_[row].line, column,
         fmt::format("expected an integer from 0 to {}, got `{}`", most, text(row, column)));
    return 1;
}

double CsvTable::positive(std::size_t row, std::string_view column) const {
    const std::optional<double> value = parse_real(text(row, column));
    if (value && *value >= kLeastMeasured && *value <= kMostMeasured) return *value;
    note(rows_[row].line, column,
         fmt::format("expected a number from {:g} to {:g}, got `{}`", kLeastMeasured, kMostMeasured,
                     text(row, column)));
    return 1.0;
}

}  // namespace kvsim
