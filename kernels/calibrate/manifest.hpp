// What every folder that kvcalib writes says of its origin, and how its files get there.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/calibrate/device_info.hpp"

namespace kvsim::calibrate {

// Where the numbers come from.
struct Provenance {
    std::filesystem::path grid;  // file
    std::string grid_text;       // what it held when it was read
    std::string revision;        // of the source
    std::string date;            // UTC, ISO 8601
};

nlohmann::ordered_json gpu_json(const DeviceInfo& device);
std::string fingerprint(const std::string& text);

// Writes texts by file name. Every file is written beside its place and renamed at the end, so that a failure
// leaves the old files whole. Throws std::runtime_error when one cannot be written.
void replace_files(const std::filesystem::path& folder, const std::map<std::string, std::string>& files);

// A whole text file. Throws std::runtime_error when it cannot be read.
std::string read_text(const std::filesystem::path& file);
// `git describe` of the working folder; "unknown" outside a repository.
std::string source_revision();
// Now, in UTC.
std::string utc_date();

}  // namespace kvsim::calibrate
