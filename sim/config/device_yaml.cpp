#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

namespace {

// Of a slower one a step would last longer than 64 bits of picoseconds hold.
constexpr Bandwidth kLeastBandwidth(1e6);
constexpr FlopRate kLeastFlopRate(1e9);

template <class Rate>
Rate read_rate(const YamlCursor& cursor, Rate rate, Rate least) {
    if (rate.value() > 0.0 && rate < least)
        cursor.mistake(fmt::format("expected at least {}, got {}", to_text(least), to_text(rate)));
    return rate;
}

Bandwidth read_bandwidth(const YamlCursor& cursor) {
    return read_rate(cursor, cursor.bandwidth(), kLeastBandwidth);
}
FlopRate read_flop_rate(const YamlCursor& cursor) {
    return read_rate(cursor, cursor.flop_rate(), kLeastFlopRate);
}

}  // namespace

DeviceSpec read_device(const YamlCursor& map) {
    DeviceSpec device;
    device.name = read_name(map.at("name"));
    device.memory = map.at("memory").bytes();
    device.peak_bandwidth = read_bandwidth(map.at("peak_bandwidth"));
    device.peak_bf16 = read_flop_rate(map.at("peak_bf16"));
    if (const YamlCursor fp8 = map.find("peak_fp8"); fp8.present()) device.peak_fp8 = read_flop_rate(fp8);
    if (const YamlCursor fp4 = map.find("peak_fp4"); fp4.present()) device.peak_fp4 = read_flop_rate(fp4);
    if (const YamlCursor link = map.find("link_bandwidth"); link.present())
        device.link_bandwidth = read_bandwidth(link);
    device.compute_capability = map.find("compute_capability").real({.min = 7.0, .max = 20.0});
    device.l2 = map.at("l2").bytes();
    device.sm_count = map.at("sm_count").small_integer(kPositiveInt);
    device.profile = read_name(map.at("profile"));
    return device;
}

void write_device(YAML::Emitter& out, const DeviceSpec& device) {
    const auto pair = [&](const char* key, const auto& value) {
        out << YAML::Key << key << YAML::Value << value;
    };
    out << YAML::BeginMap;
    pair("name", device.name);
    pair("memory", to_text(device.memory));
    pair("peak_bandwidth", to_text(device.peak_bandwidth));
    pair("peak_bf16", to_text(device.peak_bf16));
    if (device.peak_fp8.value() > 0.0) pair("peak_fp8", to_text(device.peak_fp8));
    if (device.peak_fp4.value() > 0.0) pair("peak_fp4", to_text(device.peak_fp4));
    if (device.link_bandwidth.value() > 0.0) pair("link_bandwidth", to_text(device.link_bandwidth));
    if (device.compute_capability > 0.0) pair("compute_capability", shortest(device.compute_capability));
    pair("l2", to_text(device.l2));
    pair("sm_count", device.sm_count);
    pair("profile", device.profile);
    out << YAML::EndMap;
}

}  // namespace kvsim
