// A CSV file whose columns are known: rows of texts, read into numbers with the place of every mistake.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"

namespace kvsim {

class CsvTable {
  public:
    // Reads the file; mistakes go to `mistakes` (unreadable, unknown, missing or repeated columns, rows of
    // another length, no rows at all), and the table is then empty. BOM, CRLF and blank lines are accepted.
    CsvTable(std::string file, std::vector<std::string_view> columns, std::vector<Mistake>& mistakes);

    std::size_t rows() const { return rows_.size(); }
    Place place(std::size_t row) const { return {file_, rows_[row].line, 0}; }
    std::string_view text(std::size_t row, std::string_view column) const;
    // Beyond any batch, length, width or count of bytes of one launch; products of a few stay finite.
    static constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
    static constexpr double kLeastMeasured = 1e-9;
    static constexpr double kMostMeasured = 1e9;  // microseconds: a quarter of an hour

    // Noted as a mistake, and 1, when the cell holds something else.
    std::int64_t positive_integer(std::size_t row, std::string_view column,
                                  std::int64_t most = kMostSize) const;
    std::int64_t natural(std::size_t row, std::string_view column,
                         std::int64_t most = kMostSize) const;        // or zero
    double positive(std::size_t row, std::string_view column) const;  // kLeastMeasured to kMostMeasured

  private:
    struct Row {
        int line = 0;
        std::vector<std::string> cells;  // in the order of columns_
    };
    void read();
    std::size_t index(std::string_view column) const;
    bool read_header(std::string_view text, std::vector<std::size_t>& order);
    void note(int line, std::string_view column, std::string message) const;

    std::string file_;
    std::vector<std::string_view> columns_;
    std::vector<Row> rows_;
    std::vector<Mistake>& mistakes_;
};

}  // namespace kvsim
