#include "kernels/calibrate/stored_numbers.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/reference/rounding.hpp"
#include "kernels/split_word.hpp"
#include "sim/base/check.hpp"

namespace kvsim::calibrate {
namespace {

template <class Word, class Encode>
std::vector<std::byte> encoded(std::span<const float> values, Encode encode_one) {
    std::vector<Word> words(values.size());
    std::transform(values.begin(), values.end(), words.begin(), encode_one);
    std::vector<std::byte> bytes(words.size() * sizeof(Word));
    if (!bytes.empty()) std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
}

template <class Word>
std::vector<Word> words_of(std::span<const std::byte> bytes) {
    KVSIM_CHECK(bytes.size() % sizeof(Word) == 0, "{} bytes are no array of words of {}", bytes.size(),
                sizeof(Word));
    std::vector<Word> words(bytes.size() / sizeof(Word));
    if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
    return words;
}

std::uint16_t bf16_bits(float x) {
    const auto rounded = static_cast<float>(reference::round_to_bf16(x));
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}

}  // namespace

std::vector<std::byte> encode(std::span<const float> values, NumberFormat format) {
    switch (format) {
        case NumberFormat::kFp32:
            return encoded<float>(values, [](float x) { return x; });
        case NumberFormat::kBf16:
            return encoded<std::uint16_t>(values, bf16_bits);
        case NumberFormat::kHighPlane:
            return encoded<std::uint16_t>(
                values, [](float x) { return split_word(std::bit_cast<std::uint32_t>(x)).high; });
        case NumberFormat::kLowPlane:
            return encoded<std::uint16_t>(
                values, [](float x) { return split_word(std::bit_cast<std::uint32_t>(x)).low; });
    }
    return {};
}

std::vector<float> decode(std::span<const std::byte> stored, NumberFormat format) {
    KVSIM_CHECK(format != NumberFormat::kLowPlane, "a low plane alone is no number");
    if (format == NumberFormat::kFp32) return words_of<float>(stored);
    const std::vector<std::uint16_t> words = words_of<std::uint16_t>(stored);
    std::vector<float> values(words.size());
    std::transform(words.begin(), words.end(), values.begin(),
                   [](std::uint16_t word) { return std::bit_cast<float>(decode_word(word)); });
    return values;
}

std::vector<float> decode_planes(std::span<const std::byte> high, std::span<const std::byte> low) {
    const auto highs = words_of<std::uint16_t>(high), lows = words_of<std::uint16_t>(low);
    KVSIM_CHECK(highs.size() == lows.size(), "planes of {} and {} words", highs.size(), lows.size());
    std::vector<float> values(highs.size());
    std::transform(highs.begin(), highs.end(), lows.begin(), values.begin(),
                   [](std::uint16_t h, std::uint16_t l) {
                       return std::bit_cast<float>(merge_word({h, l}));
                   });
    return values;
}

}  // namespace kvsim::calibrate
