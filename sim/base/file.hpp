// Files of users, read whole and the same way everywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

// The bytes of a regular file, through links. Throws ConfigError placed at the file: no such file; a folder;
// a device or pipe, which might never end and is not opened; cannot be read.
std::string read_regular_file(const std::string& file);

// The same of a CSV file. Throws also, at the line, for quoted cells: split_cells() takes none.
std::string read_csv_file(const std::string& file);

// Lines without their ends (LF or CRLF), a byte-order mark left out; a last line without an end counts. Views
// of `text`.
std::vector<std::string_view> split_lines(std::string_view text);

}  // namespace kvsim
