// Folders of results: written whole or not at all, and never over anything that is not ours.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace kvsim {

inline constexpr int kResultSchema = 1;

// Contents of the files of a results folder.
struct ResultFiles {
    std::string runs_csv;
    std::string manifest_json;
    std::string resolved_yaml;
};

// Throws ConfigError, placed at `option`, when `path` cannot be made: something on the way to it is no
// folder, or one that may not be written to.
void require_writable(const std::filesystem::path& path, const std::string& option);

// Throws ConfigError when something stands at `folder` that write_results() would not replace: anything but
// an empty folder or one that holds results of kvsim and nothing else; and as require_writable().
void require_replaceable(const std::filesystem::path& folder);

// Writes the files into a temporary sibling of `folder` and puts that in its place: a reader sees the old
// files or the new ones. Missing parents are made. Throws as require_replaceable(), and std::system_error
// when the disk refuses.
void write_results(const std::filesystem::path& folder, const ResultFiles& files);

// Writes one file whole: into a temporary sibling, then in place of `file`. A file of another kind, one whose
// first line that is no comment differs, stays as it is. Throws ConfigError then, and std::system_error when
// the disk refuses.
void replace_file(const std::filesystem::path& file, const std::function<void(std::ostream&)>& write);
void replace_file(const std::filesystem::path& file, std::string_view content);

}  // namespace kvsim
