// Writes a profile folder: one CSV file per kernel and manifest.json.
#pragma once

#include <filesystem>

#include "kernels/calibrate/device_info.hpp"
#include "kernels/calibrate/manifest.hpp"
#include "kernels/calibrate/measure.hpp"

namespace kvsim::calibrate {

// Reads the folder's manifest before minutes are spent: throws ConfigError when `folder`
// holds a profile of another GPU than `device`, or a manifest that cannot be read.
void check_profile_folder(const std::filesystem::path& folder, const DeviceInfo& device);

// Replaces the CSV files of the kernels that were measured; other files and their entries in the manifest
// stay. A failure leaves the old profile whole. Throws std::runtime_error when a file cannot be written.
void write_profile(const std::filesystem::path& folder, const Measurement& measurement,
                   const DeviceInfo& device, const Provenance& provenance);

}  // namespace kvsim::calibrate
