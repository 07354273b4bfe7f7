// State rows in registers, as operands of the tensor cores: which lane has what, and how it is read and
// written.
#pragma once

#include <cstdint>

#include "kernels/launch.hpp"
#include "kernels/linear_common.cuh"
#include "kernels/ptx.cuh"
#include "kernels/split_word.hpp"

namespace kvsim {

constexpr int kLineBytes = 128;

// State rows come in pieces of 16 bytes: two or four pairs of neighbouring columns.
template <StateFormat kFormat>
struct StatePiece {
    static constexpr bool kWide = kFormat == StateFormat::kFp32;
    static constexpr int kPairs = kWide ? 2 : 4;
    static constexpr int kRowBytes = kDim * (kWide ? 4 : 2);
    static constexpr int kWarpRows = kWide ? 16 : 32;  // 64 registers a lane

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
    static __device__ __forceinline__ void store(char* to, const uint4& w) {
        *reinterpret_cast<uint4*>(to) = w;
    }

    // Pair i of a piece; low: the same of the low plane of a split state.
    static __device__ __forceinline__ float2 read_pair(const uint4& piece, const uint4& low, int i) {
        if constexpr (kWide) {
            return {__uint_as_float(word(piece, 2 * i)), __uint_as_float(word(piece, 2 * i + 1))};
        } else if constexpr (kFormat == StateFormat::kSplit) {
            const unsigned h = word(piece, i), l = word(low, i);
            return {__uint_as_float(merge_word({std::uint16_t(h), std::uint16_t(l)})),
                    __uint_as_float(merge_word({std::uint16_t(h >> 16), std::uint16_t(l >> 16)}))};
        } else {
            const unsigned h = word(piece, i);
            return {low_half(h), high_half(h)};
        }
    }
    static __device__ __forceinline__ void write_pair(uint4& piece, uint4& low, int i, float a, float b) {
        if constexpr (kWide) {
            set_word(piece, 2 * i, __float_as_uint(a));
            set_word(piece, 2 * i + 1, __float_as_uint(b));
        } else if constexpr (kFormat == StateFormat::kSplit) {
            const SplitWord first = split_word(__float_as_uint(a)), second = split_word(__float_as_uint(b));
            set_word(piece, i, first.high | unsigned{second.high} << 16);
            set_word(low, i, first.low | unsigned{second.low} << 16);
        } else {
            set_word(piece, i, ptx::pack_bf16(a, b));
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

// A lane 4 g + t has rows g and g + 8 of each tile of 16, of these the pieces t, t + 4, ...: eight columns of
// each group of 32, four pairs of neighbours, in the order of ring_key_position().
template <StateFormat kFormat>
struct Fragment : StatePiece<kFormat> {
    using Piece = StatePiece<kFormat>;
    static constexpr int kTiles = Piece::kWarpRows / 16;
    static constexpr int kPieces = Piece::kWide ? 8 : 4;  // of a lane and row
    using Row = uint4[kPieces];
    using State = Row[kTiles][2];  // [.][rows g and g + 8]
    using LowRow = uint4[4];       // of the low plane of a split state

    // The pair i of group j.
    static __device__ __forceinline__ float2 read_pair(const Row& row, const LowRow& low, int j, int i) {
        return Piece::read_pair(row[j * 4 / Piece::kPairs + i / Piece::kPairs], low[j], i % Piece::kPairs);
    }
    static __device__ __forceinline__ void write_pair(Row& row, LowRow& low, int j, int i, float a, float b) {
        Piece::write_pair(row[j * 4 / Piece::kPairs + i / Piece::kPairs], low[j], i % Piece::kPairs, a, b);
    }
};

// Whole lines instead: eight lanes share a line, and a warp reads those of four rows at a time. To the tensor
// cores, a tile of eight rows is one of 16: the halves of its lines are rows g and g + 8.
template <StateFormat kFormat>
struct Lines : StatePiece<kFormat> {
    using Piece = StatePiece<kFormat>;
    static constexpr int kTiles = Piece::kWarpRows / 8;
    static constexpr int kSums = Piece::kWarpRows / 16;  // tiles of 16 rows, of sums over whole rows
    static constexpr int kLines = Piece::kRowBytes / kLineBytes;
    using Row = uint4[kLines];
    using State = Row[kTiles][2];
    using LowRow = Row;

    // Of a tile, the row of which a lane has pieces in half a tile.
    static __device__ __forceinline__ int row(int lane, int half) { return 4 * half + lane / 8; }
    // Of a piece from state[0][0][0], in bytes.
    static constexpr int offset(int tile, int half, int line) {
        return (8 * tile + 4 * half) * Piece::kRowBytes + line * kLineBytes;
    }
};

}  // namespace kvsim
