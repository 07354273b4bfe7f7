#include "kernels/calibrate/profile_writer.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "kernels/calibrate/manifest.hpp"
#include "sim/base/error.hpp"

namespace kvsim::calibrate {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kManifest = "manifest.json";

std::string csv_text(const std::vector<const ProfileRow*>& rows) {
    std::string text;
    const auto line = [&](auto cell) {
        bool first = true;
        for (const ProfileColumn& column : profile_columns()) {
            if (!first) text += ',';
            text += cell(column);
            first = false;
        }
        text += '\n';
    };
    line([](const ProfileColumn& column) { return std::string(column.name); });
    for (const ProfileRow* row : rows)
        line([row](const ProfileColumn& column) { return column.format(*row); });
    return text;
}

[[noreturn]] void refuse(const fs::path& file, std::string path, std::string message) {
    Mistake mistake;
    mistake.place.file = file.string();
    mistake.path = std::move(path);
    mistake.message = std::move(message);
    throw ConfigError(std::move(mistake));
}

// Empty object when the folder has no manifest.
Json old_manifest(const fs::path& folder) {
    const fs::path file = folder / kManifest;
    if (!fs::exists(file)) return Json::object();
    Json json = Json::parse(read_text(file), nullptr, false);
    if (!json.is_object() || !json.contains("gpu") || !json["gpu"].is_object() ||
        !json["gpu"]["name"].is_string() || !json.contains("files") || !json["files"].is_object()) {
        refuse(file, {}, "expected a manifest of kvcalib; delete it to start anew");
    }
    return json;
}

Json clocks_json(const Clocks& clocks) {
    Json json;
    json["sm_mhz"] = clocks.sm_mhz ? Json(*clocks.sm_mhz) : Json(nullptr);
    json["memory_mhz"] = clocks.memory_mhz ? Json(*clocks.memory_mhz) : Json(nullptr);
    return json;
}

// What all files of one run share.
Json run_json(const Measurement& m, const DeviceInfo& device, const Provenance& provenance) {
    return {{"date", provenance.date},
            {"revision", provenance.revision},
            {"grid", provenance.grid.generic_string()},
            {"grid_fingerprint", fingerprint(provenance.grid_text)},
            {"driver", device.driver},
            {"cuda_driver", device.cuda_driver},
            {"cuda_runtime", device.cuda_runtime},
            {"cupti", device.cupti},
            {"clocks_before", clocks_json(m.clocks_before)},
            {"clocks_after", clocks_json(m.clocks_after)},
            {"highest_sm_mhz", m.highest_sm_mhz},
            {"cupti_us", m.no_cupti_us.empty() ? "measured" : m.no_cupti_us},
            {"counters", m.no_counters.empty() ? "measured" : m.no_counters}};
}

Json row_counts(const std::vector<const ProfileRow*>& rows) {
    int failed = 0, untimed = 0, limited = 0;
    for (const ProfileRow* row : rows) {
        failed += row->verified == false ? 1 : 0;
        untimed += row->time_us ? 0 : 1;
        limited += row->clock_limit.value_or(ClockLimit::kNone) != ClockLimit::kNone ? 1 : 0;
    }
    return {{"rows", rows.size()},
            {"not_verified", failed},
            {"not_timed", untimed},
            {"clocks_held_down", limited}};
}

}  // namespace

void check_profile_folder(const fs::path& folder, const DeviceInfo& device) {
    const Json manifest = old_manifest(folder);
    if (manifest.empty()) return;
    const std::string name = manifest["gpu"]["name"];
    if (name == device.name) return;
    refuse(folder / kManifest, "gpu.name",
           fmt::format("the folder holds a profile of `{}`, this GPU is `{}`", name, device.name));
}

void write_profile(const fs::path& folder, const Measurement& measurement, const DeviceInfo& device,
                   const Provenance& provenance) {
    std::map<std::string, std::vector<const ProfileRow*>> by_kernel;
    for (const ProfileRow& row : measurement.rows) by_kernel[row.kernel].push_back(&row);

    Json old = old_manifest(folder);
    Json manifest;
    manifest["schema"] = kProfileSchema;
    manifest["gpu"] = gpu_json(device);
    manifest["method"] =
        "time_us: CUDA graph of launches in one stream that rotate over `sets` sets of buffers. Cold: before "
        "a set comes again, at least 320 MB and 4 x L2 of states and, where 2 GiB (or a quarter of the "
        "memory) hold that many sets, 2 x L2 of records, inputs and outputs were touched; a graph is whole "
        "rotations of at least 20 launches and 4 ms. Two warm-up replays, median of 9; repeated up to 3 "
        "times "
        "until (P75 - P25)/median < 1 % with no clock limit, else the best batch. Clocks and what limits "
        "them: "
        "NVML halfway through every replay. Launches of one shape in random order. cupti_us: CUPTI activity "
        "records, median of 20 after one rotation, own pass. Counters: CUPTI range profiler, own pass, one "
        "range over whole rotations of at least 8 launches after one such rotation.";
    manifest["files"] = old.contains("files") ? old["files"] : Json::object();

    std::map<std::string, std::string> files;
    for (const auto& [kernel, rows] : by_kernel) {
        files[kernel + ".csv"] = csv_text(rows);
        Json entry = row_counts(rows);
        entry.update(run_json(measurement, device, provenance));
        manifest["files"][kernel + ".csv"] = entry;
    }
    files[std::string(kManifest)] = manifest.dump(2) + "\n";
    replace_files(folder, files);
}

}  // namespace kvsim::calibrate
