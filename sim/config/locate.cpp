#include "sim/config/locate.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <set>

#include "sim/base/text.hpp"

namespace kvsim {

namespace fs = std::filesystem;

namespace {

struct KindFolder {
    std::string_view word;
    std::string_view folder;  // from a configs folder
};
constexpr std::array<KindFolder, 5> kKinds{{{"model", "models"},
                                            {"device", "devices"},
                                            {"engine", "engines"},
                                            {"workload", "../workloads"},
                                            {"experiment", "experiments"}}};

const KindFolder& entry(FileKind kind) {
    return kKinds[static_cast<std::size_t>(kind)];
}

bool is_path(const std::string& text) {
    return text.find('/') != std::string::npos || text.ends_with(".yaml");
}

bool is_file(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

}  // namespace

std::string_view name(FileKind kind) {
    return entry(kind).word;
}

std::string resolve_path(const std::string& text, const Place& place) {
    fs::path path = text;
    if (path.is_relative() && place.line > 0) path = fs::path(place.file).parent_path() / path;
    return fs::absolute(path).lexically_normal().string();
}

ConfigFolders::ConfigFolders(const std::string& experiment_file) {
    configs_.push_back(fs::absolute(experiment_file).parent_path().parent_path());
    if (const char* folder = std::getenv("KVSIM_CONFIGS"); folder != nullptr && *folder != '\0') {
        configs_.push_back(fs::absolute(folder));
    }
    configs_.emplace_back(KVSIM_CONFIGS_DIR);
}

std::string ConfigFolders::find(FileKind kind, const std::string& reference, const Place& place,
                                const std::string& key) const {
    if (is_path(reference)) {
        const std::string file = resolve_path(reference, place);
        if (!is_file(file)) throw_mistake(place, key, fmt::format("no such file: {}", file));
        return file;
    }
    for (const fs::path& configs : configs_) {
        const fs::path file = configs / entry(kind).folder / (reference + ".yaml");
        if (is_file(file)) return file.lexically_normal().string();
    }
    const std::vector<std::string> existing = names(kind);
    const std::vector<std::string_view> candidates(existing.begin(), existing.end());
    throw_mistake(place, key,
                  fmt::format("no {} is called `{}`{}; there are: {}", entry(kind).word, reference,
                              suggestion(reference, candidates), join(candidates)));
}

std::vector<std::string> ConfigFolders::names(FileKind kind) const {
    std::set<std::string> existing;
    for (const fs::path& configs : configs_) {
        std::error_code error;
        for (const fs::directory_entry& file : fs::directory_iterator(configs / entry(kind).folder, error)) {
            if (file.path().extension() == ".yaml") existing.insert(file.path().stem().string());
        }
    }
    return {existing.begin(), existing.end()};
}

std::string ConfigFolders::profile(const std::string& profile) const {
    fs::path folder;
    for (const fs::path& configs : configs_) {
        folder = (configs / ".." / "profiles" / profile).lexically_normal();
        std::error_code ignored;
        if (fs::is_directory(folder, ignored)) break;
    }
    return folder.string();
}

}  // namespace kvsim
