#include "sim/cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.hpp"

namespace kvsim {

void TextTable::add_row(std::vector<std::string> cells) {
    KVSIM_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(), columns_.size());
    rows_.push_back(std::move(cells));
}

std::string TextTable::str() const {
    std::vector<std::size_t> widths;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        std::size_t width = columns_[c].title.size();
        for (const auto& row : rows_) width = std::max(width, row[c].size());
        widths.push_back(width);
    }
    const auto line = [&](auto&& cell_of) {
        std::string text;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            if (c > 0) text += "  ";
            text += columns_[c].align == Align::kLeft ? fmt::format("{:<{}}", cell_of(c), widths[c])
                                                      : fmt::format("{:>{}}", cell_of(c), widths[c]);
        }
        text.erase(text.find_last_not_of(' ') + 1);
        return text + '\n';
    };
    std::string text = line([&](std::size_t c) { return columns_[c].title; });
    text += line([&](std::size_t c) { return std::string(widths[c], '-'); });
    for (const auto& row : rows_) text += line([&](std::size_t c) { return row[c]; });
    return text;
}

}  // namespace kvsim
