#include "sim/base/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/base/error.hpp"

namespace kvsim {

std::string read_regular_file(const std::string& file) {
    namespace fs = std::filesystem;
    const auto refuse = [&](std::string why) { throw_mistake({file, 0, 0}, "", std::move(why)); };
    std::error_code error;
    const fs::file_status status = fs::status(file, error);
    if (status.type() == fs::file_type::not_found) refuse("no such file");
    if (error) refuse(fmt::format("cannot be read: {}", error.message()));
    if (fs::is_directory(status)) refuse("expected a file, got a folder");
    if (!fs::is_regular_file(status)) refuse("expected a file, got a device or pipe");
    std::ifstream stream(file, std::ios::binary);
    std::string text;
    if (stream) {
        text.resize(fs::file_size(file));
        stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    }
    if (!stream || stream.bad()) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
    return text;
}

std::string read_csv_file(const std::string& file) {
    std::string text = read_regular_file(file);
    if (const std::size_t quote = text.find('"'); quote != std::string::npos) {
        const auto line =
            1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(quote), '\n');
        throw_mistake({file, static_cast<int>(line), 0}, "", "quoted cells are not supported");
    }
    return text;
}

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
    return lines;
}

}  // namespace kvsim
