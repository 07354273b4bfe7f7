#include "sim/cli/manifest.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/uuid/detail/sha1.hpp>
#include <chrono>

#include "sim/base/file.hpp"
#include "sim/cli/output_folder.hpp"
#include "sim/cli/version.hpp"

namespace kvsim {

std::string git_blob_id(const std::filesystem::path& file) {
    const std::string content = read_regular_file(file.string());
    boost::uuids::detail::sha1 sha1;
    const std::string header = fmt::format("blob {}", content.size());
    sha1.process_bytes(header.c_str(), header.size() + 1);  // with the closing zero byte
    sha1.process_bytes(content.data(), content.size());
    boost::uuids::detail::sha1::digest_type digest;  // five words, or twenty bytes from Boost 1.86 on
    sha1.get_digest(digest);
    std::string text;
    for (const auto part : digest) text += fmt::format("{:0{}x}", part, 2 * sizeof part);
    return text;
}

nlohmann::ordered_json make_manifest(std::span<const std::string> command_line,
                                     const std::vector<std::string>& inputs) {
    nlohmann::ordered_json manifest;
    manifest["kind"] = kManifestKind;
    manifest["schema"] = kResultSchema;
    manifest["version"] = version();
    manifest["revision"] = git_revision();
    manifest["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
    manifest["command"] = std::vector<std::string>(command_line.begin(), command_line.end());
    manifest["inputs"] = nlohmann::ordered_json::array();
    for (const std::string& input : inputs) {
        manifest["inputs"].push_back({{"file", input}, {"git_blob", git_blob_id(input)}});
    }
    return manifest;
}

}  // namespace kvsim
