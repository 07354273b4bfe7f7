// manifest.json: where a folder of results comes from.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

inline constexpr std::string_view kManifestKind = "kvsim results";

// SHA-1 of the file in Git's form, so that `git hash-object FILE` checks it. Throws std::system_error when it
// cannot be read.
std::string git_blob_id(const std::filesystem::path& file);

// Version, revision, command line, schema, date (UTC), and every input with its hash. The date stands here
// alone: runs.csv is the same bytes at any time.
nlohmann::ordered_json make_manifest(std::span<const std::string> command_line,
                                     const std::vector<std::string>& inputs);

}  // namespace kvsim
