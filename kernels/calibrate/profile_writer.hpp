// Writes a profile folder: one CSV file per kernel and manifest.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/calibrate/device_info.hpp"
#include "kernels/calibrate/measure.hpp"

namespace kvsim::calibrate {

// Where the numbers come from.
struct Provenance {
    std::filesystem::path grid;  // file
    std::string grid_text;       // what it held when it was read
    std::string revision;        // of the source
    std::string date;            // UTC, ISO 8601
};

// Reads the folder's manifest before minutes are spent: throws ConfigError when `folder`
// holds a profile of another GPU than `device`, or a manifest that cannot be read.
void check_profile_folder(const std::filesystem::path& folder, const DeviceInfo& device);

// Replaces the CSV files of the kernels that were measured; other files and their entries in the manifest
// stay. Every file is written beside its place and renamed at the end, so that a failure leaves the old
// profile whole. Throws std::runtime_error when a file cannot be written.
void write_profile(const std::filesystem::path& folder, const Measurement& measurement,
                   const DeviceInfo& device, const Provenance& provenance);

// A whole text file. Throws std::runtime_error when it cannot be read.
std::string read_text(const std::filesystem::path& file);
// `git describe` of the working folder; "unknown" outside a repository.
std::string source_revision();
// Now, in UTC.
std::string utc_date();

}  // namespace kvsim::calibrate
