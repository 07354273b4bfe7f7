#include "sim/results/csv.hpp"

namespace kvsim {
namespace {

void append_cell(std::string& line, const std::string& cell) {
    if (cell.find_first_of(",\"\r\n") == std::string::npos) {
        line += cell;
        return;
    }
    line += '"';
    for (const char c : cell) {
        if (c == '"') line += '"';
        line += c;
    }
    line += '"';
}

}  // namespace

std::string csv_line(std::span<const std::string> cells) {
    std::string line;
    for (const std::string& cell : cells) {
        if (&cell != cells.data()) line += ',';
        append_cell(line, cell);
    }
    line += '\n';
    return line;
}

}  // namespace kvsim
