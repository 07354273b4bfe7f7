// Lines of CSV files (RFC 4180, with LF as line end).
#pragma once

#include <span>
#include <string>

namespace kvsim {

// The cells with commas between them and a line end. A cell with a comma, a quote or a line end is quoted.
std::string csv_line(std::span<const std::string> cells);

}  // namespace kvsim
