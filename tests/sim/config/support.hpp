// Helpers of the configuration tests.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"

namespace kvsim {

inline const std::string kConfigs = KVSIM_SOURCE_DIR "/configs";
inline const std::string kSteady = kConfigs + "/experiments/steady_decode.yaml";
inline const std::string kAzure = kConfigs + "/experiments/azure_conv.yaml";

// The text of the ConfigError that `action` throws; empty when it throws none.
template <class Action>
std::string config_error(const Action& action) {
    try {
        action();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

// A fresh folder, removed with everything in it.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "kvsim_test_XXXXXX").string();
        KVSIM_CHECK(mkdtemp(name.data()) != nullptr, "cannot create {}", name);
        path_ = std::filesystem::canonical(name);
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    // Writes a file, with its folders, and returns its path.
    std::string write(const std::string& name, const std::string& text) const {
        const std::filesystem::path file = path_ / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
        return file.string();
    }

  private:
    std::filesystem::path path_;
};

}  // namespace kvsim
