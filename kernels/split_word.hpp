// The split state format: an fp32 word as two 16-bit planes. Plain integers, for host and device code.
//
//   high = (x + 0x8000) >> 16   the word rounded to bf16, ties away from zero: all that decode and verify
//   read low  = x & 0xffff           with the high plane gives the word back; only a flush touches it
//
// Every word but a NaN comes back bit by bit, so flushes lose nothing. A NaN becomes the quiet NaN
// 0x7fc00000: the NaN that GPUs produce, 0x7fffffff, would round to a high plane that reads as -0 and hide a
// broken state from decode. As in any rounding to bf16, the high plane of a finite word above bf16's range
// (|x| >= 0x7f7f8000) reads as infinity; the word itself is kept.
#pragma once

#include <cstdint>

namespace kvsim {

struct SplitWord {
    std::uint16_t high = 0;
    std::uint16_t low = 0;
};

constexpr SplitWord split_word(std::uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0x7fc00000u;
    return {static_cast<std::uint16_t>((bits + 0x8000u) >> 16), static_cast<std::uint16_t>(bits)};
}

// The word that was split. The addition carried into the high plane exactly when low >= 0x8000.
constexpr std::uint32_t merge_word(SplitWord w) {
    const std::uint32_t carried = w.low >= 0x8000u ? 0x10000u : 0u;
    return ((std::uint32_t{w.high} << 16) - carried) | w.low;
}

// The fp32 bits that decode and verify compute with.
constexpr std::uint32_t decode_word(std::uint16_t high) {
    return std::uint32_t{high} << 16;
}

}  // namespace kvsim
