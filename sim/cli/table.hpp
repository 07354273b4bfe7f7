// Text tables for stdout.
#pragma once

#include <string>
#include <vector>

namespace kvsim {

// Columns are as wide as their widest cell.
class TextTable {
  public:
    enum class Align { kLeft, kRight };
    struct Column {
        std::string title;
        Align align = Align::kRight;
    };

    explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
    // As many cells as columns.
    void add_row(std::vector<std::string> cells);
    // Title line, a rule and the rows, each ending in a newline.
    std::string str() const;

  private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvsim
