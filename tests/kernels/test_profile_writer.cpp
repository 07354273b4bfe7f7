#include "kernels/calibrate/profile_writer.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sim/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
using namespace kvsim::calibrate;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

fs::path empty_folder() {
    const fs::path folder = KVSIM_BINARY_DIR "/test_profile_writer_folder";
    fs::remove_all(folder);
    return folder;
}

Measurement one_row(Kernel kernel, double time_us) {
    Measurement m;
    ProfileRow row = describe({.kernel = kernel, .bytes = Bytes(1 << 20)});
    row.time_us = time_us;
    row.clock_limit = ClockLimit::kPower;
    row.verified = true;
    m.rows.push_back(row);
    return m;
}

DeviceInfo gpu(const std::string& name) {
    DeviceInfo device;
    device.name = name;
    return device;
}

const Provenance kProvenance{KVSIM_SOURCE_DIR "/configs/calibration/smoke.yaml", "grid", "abc",
                             "2026-01-02T03:04:05Z"};

}  // namespace

TEST_CASE("a profile has a line per row, and says where it comes from") {
    const fs::path folder = empty_folder();
    write_profile(folder, one_row(Kernel::kStreamRead, 1.25), gpu("GPU A"), kProvenance);
    const std::string csv = read(folder / "stream_read.csv");
    CHECK(csv.substr(0, 19) == "kernel,family,form,");
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 2);
    CHECK_THAT(csv, ContainsSubstring("\nstream_read,,"));
    CHECK_THAT(csv, ContainsSubstring(",1048576,cold,,1.25,"));
    const auto manifest = nlohmann::json::parse(read(folder / "manifest.json"));
    CHECK(manifest["schema"] == 2);
    CHECK(manifest["gpu"]["name"] == "GPU A");
    CHECK(manifest["files"]["stream_read.csv"]["rows"] == 1);
    CHECK(manifest["files"]["stream_read.csv"]["not_timed"] == 0);
    CHECK(manifest["files"]["stream_read.csv"]["clocks_held_down"] == 1);
    CHECK(manifest["files"]["stream_read.csv"]["revision"] == "abc");
    for (const auto& entry : fs::directory_iterator(folder)) CHECK(entry.path().extension() != ".partial");
}

TEST_CASE("measuring one kernel leaves the files of others alone") {
    const fs::path folder = empty_folder();
    write_profile(folder, one_row(Kernel::kStreamRead, 1.25), gpu("GPU A"), kProvenance);
    const std::string before = read(folder / "stream_read.csv");
    Provenance later = kProvenance;
    later.revision = "def";
    write_profile(folder, one_row(Kernel::kStreamCopy, 2.5), gpu("GPU A"), later);
    CHECK(read(folder / "stream_read.csv") == before);
    const auto files = nlohmann::json::parse(read(folder / "manifest.json"))["files"];
    CHECK(files["stream_read.csv"]["revision"] == "abc");
    CHECK(files["stream_copy.csv"]["revision"] == "def");
}

TEST_CASE("a profile of another GPU is not mixed in, a broken manifest not replaced") {
    const fs::path folder = empty_folder();
    CHECK_NOTHROW(check_profile_folder(folder, gpu("GPU A")));
    write_profile(folder, one_row(Kernel::kStreamRead, 1.25), gpu("GPU A"), kProvenance);
    CHECK_NOTHROW(check_profile_folder(folder, gpu("GPU A")));
    CHECK_THROWS_AS(check_profile_folder(folder, gpu("GPU B")), ConfigError);
    std::ofstream(folder / "manifest.json") << "{\"gpu\": ";
    CHECK_THROWS_AS(check_profile_folder(folder, gpu("GPU A")), ConfigError);
}
