#include "sim/base/file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;

namespace {

std::filesystem::path scratch() {
    const auto folder =
        std::filesystem::temp_directory_path() / ("kvsim_test_file_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    return folder;
}

}  // namespace

TEST_CASE("a regular file is read to the byte, through a link too", "[file]") {
    const auto folder = scratch();
    const std::string bytes("a\r\n\0b", 5);
    std::ofstream(folder / "file", std::ios::binary) << bytes;
    std::filesystem::create_symlink(folder / "file", folder / "link");
    std::ofstream(folder / "empty");
    CHECK(read_regular_file((folder / "file").string()) == bytes);
    CHECK(read_regular_file((folder / "link").string()) == bytes);
    CHECK(read_regular_file((folder / "empty").string()).empty());
    std::filesystem::remove_all(folder);
}

TEST_CASE("what is no regular file is refused without being opened", "[file]") {
    const auto folder = scratch();
    const std::string fifo = (folder / "fifo").string();
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);  // opening it would wait for a writer
    CHECK_THROWS_WITH(read_regular_file(fifo), fifo + ": expected a file, got a device or pipe");
    CHECK_THROWS_WITH(read_regular_file("/dev/zero"), "/dev/zero: expected a file, got a device or pipe");
    CHECK_THROWS_WITH(read_regular_file("/tmp"), "/tmp: expected a file, got a folder");
    CHECK_THROWS_WITH(read_regular_file("/none"), "/none: no such file");
    CHECK_THROWS_AS(read_regular_file("/none"), ConfigError);
    std::filesystem::remove_all(folder);
}

TEST_CASE("lines lose their ends and the byte-order mark", "[file]") {
    CHECK(split_lines("\xEF\xBB\xBF"
                      "a\r\n\nb") == std::vector<std::string_view>{"a", "", "b"});
    CHECK(split_lines("a\n") == std::vector<std::string_view>{"a"});
    CHECK(split_lines("").empty());
}

TEST_CASE("a quote in a CSV file is refused at its line", "[file]") {
    const auto folder = scratch();
    const std::string file = (folder / "rows.csv").string();
    std::ofstream(file) << "a,b\n1,2\n\"3,4\n";
    CHECK_THROWS_WITH(read_csv_file(file), file + ":3: quoted cells are not supported");
    std::ofstream(file) << "a,b\n1,2\n";
    CHECK(read_csv_file(file) == "a,b\n1,2\n");
    std::filesystem::remove_all(folder);
}
