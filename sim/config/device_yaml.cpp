#include <yaml-cpp/emitter.h>

#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

DeviceSpec read_device(const YamlCursor& map) {
    DeviceSpec device;
    device.name = read_name(map.at("name"));
    device.memory = map.at("memory").bytes();
    device.peak_bandwidth = map.at("peak_bandwidth").bandwidth();
    device.peak_bf16 = map.at("peak_bf16").flop_rate();
    device.peak_fp32 = map.at("peak_fp32").flop_rate();
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
    pair("peak_fp32", to_text(device.peak_fp32));
    pair("l2", to_text(device.l2));
    pair("sm_count", device.sm_count);
    pair("profile", device.profile);
    out << YAML::EndMap;
}

}  // namespace kvsim
