// Arrays of numbers as device memory holds them. Pure host code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvsim::calibrate {

// The planes of a split state (kernels/split_word.hpp) are two arrays.
enum class NumberFormat : std::uint8_t { kFp32, kBf16, kHighPlane, kLowPlane };

constexpr std::size_t bytes_per_number(NumberFormat format) {
    return format == NumberFormat::kFp32 ? 4 : 2;
}

std::vector<std::byte> encode(std::span<const float> values, NumberFormat format);

// What encode() made, or a kernel wrote. A high plane gives what decode sees; low planes only mean something
// beside their high ones.
std::vector<float> decode(std::span<const std::byte> stored, NumberFormat format);
std::vector<float> decode_planes(std::span<const std::byte> high, std::span<const std::byte> low);

}  // namespace kvsim::calibrate
