#include "kernels/calibrate/manifest.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace kvsim::calibrate {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& file, const std::string& text) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) throw std::runtime_error(fmt::format("{}: cannot be written", file.string()));
}

}  // namespace

// 64-bit FNV-1a: tells grid files apart, nothing more.
std::string fingerprint(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return fmt::format("fnv1a64:{:016x}", hash);
}

nlohmann::ordered_json gpu_json(const DeviceInfo& device) {
    return {{"name", device.name},
            {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
            {"sms", device.sms},
            {"l2_bytes", device.l2.value()},
            {"memory_bytes", device.memory.value()},
            {"ecc", device.ecc}};
}

std::string read_text(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in) throw std::runtime_error(fmt::format("{}: cannot be read", file.string()));
    return text.str();
}

void replace_files(const fs::path& folder, const std::map<std::string, std::string>& files) {
    fs::create_directories(folder);
    for (const auto& [name, text] : files) write_text(folder / (name + ".partial"), text);
    for (const auto& [name, text] : files) fs::rename(folder / (name + ".partial"), folder / name);
}

std::string source_revision() {
    std::FILE* const pipe = popen("git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null", "r");
    if (pipe == nullptr) return "unknown";
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF && c != '\n'; c = std::fgetc(pipe)) text += static_cast<char>(c);
    pclose(pipe);
    return text.empty() ? "unknown" : text;
}

std::string utc_date() {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace kvsim::calibrate
