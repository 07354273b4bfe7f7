// Writes what `kvcalib sustained` measured: sustained.csv (a line per slice), sustained_clocks.csv (a line
// per reading of the driver), sustained_bursts.csv (a line per call) and sustained_manifest.json.
#pragma once

#include <filesystem>

#include "kernels/calibrate/manifest.hpp"
#include "kernels/calibrate/sustained.hpp"

namespace kvsim::calibrate {

// The folder may be that of a profile, whose files stay. Throws std::runtime_error when a file cannot be
// written.
void write_sustained(const std::filesystem::path& folder, const SustainedPlan& plan,
                     const SustainedMeasurement& measurement, const DeviceInfo& device,
                     const Provenance& provenance);

}  // namespace kvsim::calibrate
