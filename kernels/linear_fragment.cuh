// State rows in registers, as operands of the tensor cores: which lane has what, and how it is read and
// written.
#pragma once

#include <cstdint>

#include "kernels/launch.hpp"
#include "kernels/linear_common.cuh"
#include "kernels/ptx.cuh"
#include "kernels/split_word.hpp"

namespace kvsim {

// A lane 4 g + t has rows g and g + 8 of each tile of 16, of these the pieces t, t + 4, ... of 16 bytes:
// eight columns of each group of 32, four pairs of neighbours, in the order of ring_key_position().
template <StateFormat kFormat>
struct Fragment {
    static constexpr bool kWide = kFormat == StateFormat::kFp32;
    static constexpr int kTiles = kWide ? 1 : 2;   // of a warp: 64 registers
    static constexpr int kPieces = kWide ? 8 : 4;  // of a lane and row
    static constexpr int kRowBytes = kDim * (kWide ? 4 : 2);
    using Row = uint4[kPieces];
    using State = Row[kTiles][2];  // [.][rows g and g + 8]
    using LowRow = uint4[4];  // of the low plane of a split state

    static __device__ __forceinline__ uint4 load(const char* at) {
        uint4 w;
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                     : "l"(at)
                     : "memory");
        return w;
    }
    static __device__ __forceinline__ uint4 load(const char* at, std::uint64_t policy) {
        uint4 w;
        asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                     : "l"(at), "l"(policy)
                     : "memory");
        return w;
    }
    // The lines are not to stay in the L2.
    static __device__ __forceinline__ void store(char* to, const uint4& w) {
        __stcs(reinterpret_cast<uint4*>(to), w);
    }

    // The pair i of group j.
    static __device__ __forceinline__ float2 read_pair(const Row& row, const LowRow& low, int j, int i) {
        if constexpr (kWide) {
            const uint4& w = row[2 * j + i / 2];
            return {__uint_as_float(word(w, 2 * (i % 2))), __uint_as_float(word(w, 2 * (i % 2) + 1))};
        } else if constexpr (kFormat == StateFormat::kSplit) {
            const unsigned h = word(row[j], i), l = word(low[j], i);
            return {__uint_as_float(merge_word({std::uint16_t(h), std::uint16_t(l)})),
                    __uint_as_float(merge_word({std::uint16_t(h >> 16), std::uint16_t(l >> 16)}))};
        } else {
            const unsigned h = word(row[j], i);
            return {low_half(h), high_half(h)};
        }
    }
    static __device__ __forceinline__ void write_pair(Row& row, LowRow& low, int j, int i, float a, float b) {
        if constexpr (kWide) {
            uint4& w = row[2 * j + i / 2];
            set_word(w, 2 * (i % 2), __float_as_uint(a));
            set_word(w, 2 * (i % 2) + 1, __float_as_uint(b));
        } else if constexpr (kFormat == StateFormat::kSplit) {
            const SplitWord first = split_word(__float_as_uint(a)), second = split_word(__float_as_uint(b));
            set_word(row[j], i, first.high | unsigned{second.high} << 16);
            set_word(low[j], i, first.low | unsigned{second.low} << 16);
        } else {
            set_word(row[j], i, ptx::pack_bf16(a, b));
        }
    }

  private:
    // Indices are constants once loops are unrolled.
    static __device__ __forceinline__ unsigned word(const uint4& w, int i) {
        return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
    }
    static __device__ __forceinline__ void set_word(uint4& w, int i, unsigned value) {
        if (i == 0) w.x = value;
        if (i == 1) w.y = value;
        if (i == 2) w.z = value;
        if (i == 3) w.w = value;
    }
};

}  // namespace kvsim
