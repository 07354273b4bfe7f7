// What is kept between tokens, rounded as the storage formats round it; arithmetic stays in double.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/shapes.hpp"
#include "kernels/split_word.hpp"

namespace kvsim::reference {

// kNone keeps doubles. kSplit stores fp32 words, of which decode and verify see the high plane.
enum class StateRounding : std::uint8_t { kNone, kFp32, kBf16, kSplit };

// Of a record's u and sum of gates; its key is a bf16 input and exact. kFp32U: both fp32. kBf16: u bf16,
// gates fp32.
enum class RecordRounding : std::uint8_t { kNone, kFp32U, kBf16 };

struct Storage {
    StateRounding state = StateRounding::kNone;
    RecordRounding records = RecordRounding::kNone;
};

inline double round_to_fp32(double x) {
    return static_cast<float>(x);
}

// To the nearest bf16 of the nearest fp32, ties to even, as the hardware converts.
inline double round_to_bf16(double x) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    if (x != x) return x;
    return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

// What storage makes of a state element that is written.
inline double stored(double x, StateRounding rounding) {
    switch (rounding) {
        case StateRounding::kNone:
            return x;
        case StateRounding::kFp32:
        case StateRounding::kSplit:
            return round_to_fp32(x);
        case StateRounding::kBf16:
            return round_to_bf16(x);
    }
    return x;
}
inline void store(std::span<double> state, StateRounding rounding) {
    for (double& x : state) x = stored(x, rounding);
}

// What decode and verify see of a stored state element.
inline double seen(double x, StateRounding rounding) {
    if (rounding != StateRounding::kSplit) return x;
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    return std::bit_cast<float>(decode_word(split_word(bits).high));
}

}  // namespace kvsim::reference
