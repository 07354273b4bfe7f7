#include "kernels/calibrate/stored_numbers.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/catch.hpp"

using namespace kvsim::calibrate;

namespace {

std::vector<std::uint16_t> halves(const std::vector<std::byte>& bytes) {
    std::vector<std::uint16_t> words(bytes.size() / 2);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    return words;
}

// 1; 1 + 2^-8, half-way between two bf16; 1 + 2^-8 + 2^-23; -2.
const std::vector<float> kValues{1.0f, 1.00390625f, 1.00390637f, -2.0f};

}  // namespace

TEST_CASE("fp32 is kept as it is") {
    const std::vector<std::byte> stored = encode(kValues, NumberFormat::kFp32);
    CHECK(stored.size() == 16);
    CHECK(decode(stored, NumberFormat::kFp32) == kValues);
}

TEST_CASE("bf16 rounds to nearest, ties to even") {
    const std::vector<std::byte> stored = encode(kValues, NumberFormat::kBf16);
    CHECK(halves(stored) == std::vector<std::uint16_t>{0x3f80, 0x3f80, 0x3f81, 0xc000});
    CHECK(decode(stored, NumberFormat::kBf16) == std::vector<float>{1.0f, 1.0f, 1.0078125f, -2.0f});
}

TEST_CASE("a split state is two planes that give the words back; the high one rounds ties away") {
    const std::vector<std::byte> high = encode(kValues, NumberFormat::kHighPlane);
    const std::vector<std::byte> low = encode(kValues, NumberFormat::kLowPlane);
    CHECK(halves(high) == std::vector<std::uint16_t>{0x3f80, 0x3f81, 0x3f81, 0xc000});
    CHECK(halves(low) == std::vector<std::uint16_t>{0x0000, 0x8000, 0x8001, 0x0000});
    CHECK(decode_planes(high, low) == kValues);
    CHECK(decode(high, NumberFormat::kHighPlane)[1] == 1.0078125f);
}

TEST_CASE("poison of ones is no number in any format") {
    const std::vector<std::byte> poison(8, std::byte{0xff});
    CHECK(std::isnan(decode(poison, NumberFormat::kFp32)[1]));
    CHECK(std::isnan(decode(poison, NumberFormat::kBf16)[3]));
}
