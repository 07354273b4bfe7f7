#include "sim/cli/output_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "sim/base/error.hpp"
#include "sim/cli/manifest.hpp"

namespace kvsim {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kNames{"runs.csv", "manifest.json", "resolved.yaml"};

[[noreturn]] void refuse(const fs::path& folder, const std::string& why) {
    throw_mistake({"--out"}, "", fmt::format("`{}` is not replaced: {}", folder.string(), why));
}

// Other programs write a manifest.json too: ours says so inside.
bool is_our_manifest(const fs::path& file) {
    std::ifstream in(file);
    const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    return json.is_object() && json.value("kind", "") == kManifestKind;
}

// Signals that would end the program wait while it lives: between the folder that is made and the one that
// stays nothing is left behind.
class SignalsHeld {
  public:
    SignalsHeld() {
        sigset_t held;
        sigemptyset(&held);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXFSZ}) sigaddset(&held, signal);
        pthread_sigmask(SIG_BLOCK, &held, &before_);
    }
    ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;

  private:
    sigset_t before_{};
};

// A fresh folder that disappears with its owner unless it has been moved away.
class TemporaryFolder {
  public:
    explicit TemporaryFolder(const fs::path& sibling) {
        std::string name =
            (sibling.parent_path() / fmt::format(".{}.XXXXXX", sibling.filename().string())).string();
        if (mkdtemp(name.data()) == nullptr) {
            throw std::system_error(errno, std::generic_category(), fmt::format("cannot create {}", name));
        }
        path_ = name;
        // mkdtemp allows the owner alone; a results folder is as readable as any other.
        fs::permissions(
            path_,
            fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec,
            fs::perm_options::add);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const fs::path& path() const { return path_; }

  private:
    SignalsHeld held_;  // outlives the folder
    fs::path path_;
};

void write_file(const fs::path& file, const std::function<void(std::ostream&)>& write) {
    std::ofstream out(file, std::ios::binary);
    write(out);
    out.close();
    if (!out)
        throw std::system_error(errno, std::generic_category(),
                                fmt::format("cannot write {}", file.string()));
}

}  // namespace

void require_writable(const fs::path& path, const std::string& option) {
    fs::path above = fs::absolute(path).lexically_normal();
    if (!above.has_filename()) above = above.parent_path();
    std::error_code error;
    do above = above.parent_path();
    while (above.has_parent_path() && fs::status(above, error).type() == fs::file_type::not_found);
    if (!fs::is_directory(above, error))
        throw_mistake({option}, "",
                      fmt::format("`{}` cannot be made: {} is no folder", path.string(), above.string()));
    if (access(above.c_str(), W_OK | X_OK) != 0)
        throw_mistake(
            {option}, "",
            fmt::format("`{}` cannot be made: {} may not be written to", path.string(), above.string()));
    if (fs::status(path, error).type() == fs::file_type::none)  // links in a circle, too long a name
        throw_mistake({option}, "", fmt::format("`{}` cannot be made: {}", path.string(), error.message()));
}

void require_replaceable(const fs::path& folder) {
    require_writable(folder, "--out");
    if (!fs::exists(fs::symlink_status(folder))) return;
    if (!fs::is_directory(folder)) refuse(folder, "it is not a folder");
    if (fs::is_empty(folder)) return;
    if (!is_our_manifest(folder / "manifest.json")) refuse(folder, "it holds no results of kvsim");
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (std::ranges::find(kNames, entry.path().filename().string()) == kNames.end()) {
            refuse(folder, fmt::format("it also holds `{}`", entry.path().filename().string()));
        }
    }
}

void write_results(const fs::path& folder, const ResultFiles& files) {
    require_replaceable(folder);
    // Without a trailing slash, and through links: the sibling must lie on the same file system.
    fs::path target = fs::weakly_canonical(fs::absolute(folder));
    if (!target.has_filename()) target = target.parent_path();
    fs::create_directories(target.parent_path());

    const TemporaryFolder temporary(target);
    const std::array<std::string_view, 3> contents{files.runs_csv, files.manifest_json, files.resolved_yaml};
    for (std::size_t i = 0; i < kNames.size(); ++i)
        write_file(temporary.path() / kNames[i], [&](std::ostream& out) { out << contents[i]; });

    // The exchange leaves the old results in the temporary folder, which goes away with them.
    if (fs::exists(target) &&
        renameat2(AT_FDCWD, temporary.path().c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
        return;
    }
    if (!fs::exists(target)) {
        fs::rename(temporary.path(), target);
        return;
    }
    const TemporaryFolder old(target);  // a file system that cannot exchange: two steps
    fs::rename(target, old.path() / "old");
    fs::rename(temporary.path(), target);
}

namespace {

// The first line that is no comment: what kind of file it is.
std::string first_line(const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    while (std::getline(in, line) && line.starts_with('#')) {
    }
    return line;
}

}  // namespace

void replace_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
    // A link to a file stays a link.
    const fs::path file = fs::weakly_canonical(fs::absolute(path));
    if (fs::exists(file) && !fs::is_regular_file(file))
        throw_mistake({}, path.string(), "expected a file to write to, got something else");
    const TemporaryFolder temporary(file);
    const fs::path written = temporary.path() / file.filename();
    write_file(written, write);
    if (const std::string line = first_line(file); !line.empty() && line != first_line(written))
        throw_mistake({}, path.string(), "is a file of another kind, and stays as it is");
    fs::rename(written, file);
}

void replace_file(const fs::path& file, std::string_view content) {
    replace_file(file, [&](std::ostream& out) { out << content; });
}

}  // namespace kvsim
