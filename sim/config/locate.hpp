// Finds the files that experiments name: `model: qwen3.5-35b-a3b` is models/qwen3.5-35b-a3b.yaml of a configs
// folder.
//
// Configs folders, in order: the one that holds the experiment (the parent of its folder), $KVSIM_CONFIGS,
// the one that the program was built with. The folders workloads and profiles are looked for beside each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"

namespace kvsim {

enum class FileKind : std::uint8_t { kModel, kDevice, kEngine, kWorkload, kExperiment };

// The kind's word in `schema: kvsim/<word>/1` and as a key of an experiment.
std::string_view name(FileKind kind);

class ConfigFolders {
  public:
    explicit ConfigFolders(const std::string& experiment_file);

    // The file that `reference`, which stands at `place`, names: a name, or a path (with a '/' or ending in
    // .yaml), taken as in resolve_path(). Throws ConfigError there, with the key path `key`, when there is no
    // such file; for a name it lists those that exist.
    std::string find(FileKind kind, const std::string& reference, const Place& place,
                     const std::string& key) const;
    // Names that find() knows, sorted.
    std::vector<std::string> names(FileKind kind) const;
    // The folder of a profile by name; need not exist.
    std::string profile(const std::string& profile) const;

  private:
    std::vector<std::filesystem::path> configs_;
};

// An absolute path: one that stands in a file is relative to that file's folder, one of --set to the working
// directory.
std::string resolve_path(const std::string& text, const Place& place);

}  // namespace kvsim
