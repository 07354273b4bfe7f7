// What the kernels share that hold a state tile in registers.
//
// A block of two warps owns 32 rows of one (request, value head): eight lanes share a row, 16 columns each,
// so that every load of a warp covers four full 128-byte lines. Eight such blocks share a multiprocessor. On
// the H200 larger blocks and more warps per row were slower: what binds is the instructions of a warp beside
// its loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/launch.hpp"
#include "kernels/linear_common.cuh"
#include "kernels/ptx.cuh"
#include "kernels/split_word.hpp"

namespace kvsim::tile {

using namespace ptx;

constexpr int kRows = 32;  // state rows of a block
constexpr int kThreads = 64;
constexpr int kBlocksPerHead = kDim / kRows;
constexpr int kBlocksPerSm = 8;  // 128 registers a thread: the state tile takes 64, q and k 32
constexpr int kLanesPerRow = 8;
constexpr int kColumns = 16;  // of one lane
constexpr int kPasses = 4;    // rows of one lane; a warp holds 4 rows per pass
constexpr int kRowsPerWarp = 16;

using Columns = float[kColumns];
using Tile = Columns[kPasses];  // a lane's part of the state: its columns of the rows 4 n further in pass n

// A lane's columns come in groups of 16 bytes of state: kGroup neighbours each.
template <StateFormat kFormat>
constexpr int kGroup = kFormat == StateFormat::kFp32 ? 4 : 8;
template <StateFormat kFormat>
constexpr int kGroups = kColumns / kGroup<kFormat>;

__device__ __forceinline__ unsigned pack_halves(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(pair);
}
__device__ __forceinline__ void unpack(uint2 words, float* out) {
    out[0] = low_half(words.x);
    out[1] = high_half(words.x);
    out[2] = low_half(words.y);
    out[3] = high_half(words.y);
}
__device__ __forceinline__ void unpack(uint4 words, float* out) {
    unpack(uint2{words.x, words.y}, out);
    unpack(uint2{words.z, words.w}, out + 4);
}

// A lane's columns of a 128-vector in bf16. kNow: in global memory, and asked for here and nowhere else.
template <StateFormat kFormat, bool kNow = false>
__device__ __forceinline__ void load_columns(const __nv_bfloat16* vector, int lane, Columns& out) {
    using Piece = std::conditional_t<kGroup<kFormat> == 4, uint2, uint4>;
    const auto* from = reinterpret_cast<const Piece*>(vector) + lane % kLanesPerRow;
#pragma unroll
    for (int j = 0; j < kGroups<kFormat>; ++j, from += kLanesPerRow) {
        Piece piece;
        if constexpr (kNow) {
            piece = load_now(from);
        } else {
            piece = *from;
        }
        unpack(piece, out + kGroup<kFormat> * j);
    }
}

__device__ __forceinline__ float dot(const Columns& a, const Columns& b) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum = fmaf(a[c], b[c], sum);
    return sum;
}

// Sum over the eight lanes of a row, in all of them.
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int mask = 1; mask < kLanesPerRow; mask *= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
    return x;
}

// Sums eight values over the eight lanes of a row with seven shuffles; lane l of the row is left with
// values[l].
__device__ __forceinline__ float transpose_sum(float (&values)[8], int lane) {
#pragma unroll
    for (int half = 4; half >= 1; half /= 2) {
        const bool upper = lane & half;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const float keep = upper ? values[i + half] : values[i];
            const float give = upper ? values[i] : values[i + half];
            values[i] = keep + __shfl_xor_sync(kAllLanes, give, half);
        }
    }
    return values[0];
}

__device__ __forceinline__ float log_gate(float a_log, float a, float dt_bias) {
    return log_gate_at_rate(-expf(a_log), a + dt_bias);
}
__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

// factor / |x|.
__device__ __forceinline__ float norm_scale(const Columns& x, float factor) {
    return rsqrtf(row_sum(dot(x, x)) + kNormEpsilon) * factor;
}
// x *= factor / |x|; returns what x was multiplied by.
__device__ __forceinline__ float normalise(Columns& x, float factor) {
    const float scale = norm_scale(x, factor);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) x[c] *= scale;
    return scale;
}

// Which part of the work is this block's and this lane's. Grid: x = blocks of the value heads of a key head,
// y = key heads, z = rows of the batch, so that nothing has to be divided before the state is asked for.
struct Place {
    int value_head, first_row, batch_row, key_head;
    int lane;
    int lane_row;  // in the block, of pass 0; pass n is 4 n further
    int own_row;   // of which this lane has the sums: for k if it is even, for q if it is odd

    __device__ __forceinline__ explicit Place(const LinearParams& p) {
        key_head = blockIdx.y;
        value_head = (key_head * gridDim.x + blockIdx.x) / kBlocksPerHead;
        first_row = blockIdx.x % kBlocksPerHead * kRows;
        batch_row = blockIdx.z;
        lane = threadIdx.x % 32;
        lane_row = threadIdx.x / 32 * kRowsPerWarp + lane / kLanesPerRow;
        own_row = lane_row + 4 * (lane % kLanesPerRow / 2);
    }
    // Index of this value head in an array [batch, T, v_heads].
    __device__ __forceinline__ std::size_t head_index(const LinearParams& p, int token) const {
        return (std::size_t(batch_row) * p.tokens + token) * p.shape.v_heads + value_head;
    }
    // Index of the block's first row in an array [n, v_heads, v_dim] at index i of n.
    __device__ __forceinline__ std::size_t row_index(const LinearParams& p, std::size_t i) const {
        return (i * p.shape.v_heads + value_head) * kDim + first_row;
    }
};

// The packed q|k|v of one token.
struct TokenVectors {
    const __nv_bfloat16 *q, *k, *v;  // of the block's heads; v from the block's first row on

    __device__ __forceinline__ TokenVectors(const LinearParams& p, const Place& place, int token) {
        const int keys = p.shape.k_heads * kDim;
        const int width = 2 * keys + p.shape.v_heads * kDim;
        q = p.qkv + (std::size_t(place.batch_row) * p.tokens + token) * width + place.key_head * kDim;
        k = q + keys;
        v = k - place.key_head * kDim + keys + place.value_head * kDim + place.first_row;
    }
};

// The output of a padding row: out is that of the block's first row.
__device__ __forceinline__ void write_zeros(__nv_bfloat16* out) {
    if (threadIdx.x < kRows) out[threadIdx.x] = __float2bfloat16(0.0f);
}

// The products of the rows with k and q, summed over each row: of own_row, with k in even and q in odd lanes.
__device__ __forceinline__ float state_terms(const Tile& s, const Columns& k, const Columns& q, int lane) {
    float sums[8];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
        sums[2 * pass] = dot(s[pass], k);
        sums[2 * pass + 1] = dot(s[pass], q);
    }
    return transpose_sum(sums, lane);
}

// factor (v - x) of own_row, in both of its lanes. own: x in even lanes, the part of o without u in odd
// lanes. The factor beta gives u; beta / |k| gives what, times the key as it came in, is u k^T.
__device__ __forceinline__ float delta(float own, float factor, float v, int lane) {
    const float other = __shfl_xor_sync(kAllLanes, own, 1);
    return factor * (v - (lane % 2 ? other : own));
}

// S = decay S + u k^T.
__device__ __forceinline__ void advance(Tile& s, float decay, float u, const Columns& k, int lane) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
        const float row_u = __shfl_sync(kAllLanes, u, (lane & ~(kLanesPerRow - 1)) + 2 * pass);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) s[pass][c] = fmaf(row_u, k[c], decay * s[pass][c]);
    }
}

// A block's rows of a state in memory, in pieces of 16 bytes.
template <StateFormat kFormat>
struct StateRows {
    static constexpr bool kSplit = kFormat == StateFormat::kSplit;
    static constexpr int kPlanes = kSplit ? 2 : 1;
    using Pieces = uint4[kPasses][kPlanes][kGroups<kFormat>];

    uint4 *plane, *low;  // a lane's first piece

    // row: index of the block's first row, in rows of k_dim elements.
    __device__ __forceinline__ StateRows(void* state, void* state_low, std::size_t row, const Place& place) {
        const std::size_t first = (row + place.lane_row) * (kDim / kGroup<kFormat>)+place.lane % kLanesPerRow;
        plane = static_cast<uint4*>(state) + first;
        low = kSplit ? static_cast<uint4*>(state_low) + first : nullptr;
    }
    __device__ __forceinline__ uint4* address(int pass, int part, int j) const {
        return (part ? low : plane) + (4 * pass * (kDim / kGroup<kFormat>)+kLanesPerRow * j);
    }

    // Only asks for the data: widen() is the first to use them.
    __device__ __forceinline__ void load(Pieces& out, std::uint64_t policy) const {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
            for (int part = 0; part < kPlanes; ++part)
#pragma unroll
                for (int j = 0; j < kGroups<kFormat>; ++j) {
                    uint4& w = out[pass][part][j];
                    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                                 : "l"(address(pass, part, j)), "l"(policy)
                                 : "memory");
                }
    }

    // kStream: the lines are not to stay in the L2.
    template <bool kStream>
    __device__ __forceinline__ void store(const Tile& s) const {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
            for (int j = 0; j < kGroups<kFormat>; ++j) {
                uint4 words[kPlanes];
                narrow(s[pass] + kGroup<kFormat> * j, words);
#pragma unroll
                for (int part = 0; part < kPlanes; ++part) {
                    uint4* to = address(pass, part, j);
                    if constexpr (kStream) {
                        __stcs(to, words[part]);
                    } else {
                        *to = words[part];
                    }
                }
            }
    }

    static __device__ __forceinline__ void widen(const Pieces& in, Tile& s) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
            for (int j = 0; j < kGroups<kFormat>; ++j) {
                float* out = s[pass] + kGroup<kFormat> * j;
                const uint4 w = in[pass][0][j];
                if constexpr (kFormat == StateFormat::kFp32) {
                    out[0] = __uint_as_float(w.x);
                    out[1] = __uint_as_float(w.y);
                    out[2] = __uint_as_float(w.z);
                    out[3] = __uint_as_float(w.w);
                } else if constexpr (kSplit) {
                    const uint4 l = in[pass][1][j];
                    merge(w.x, l.x, out);
                    merge(w.y, l.y, out + 2);
                    merge(w.z, l.z, out + 4);
                    merge(w.w, l.w, out + 6);
                } else {
                    unpack(w, out);
                }
            }
    }

  private:
    static __device__ __forceinline__ void merge(unsigned high, unsigned low, float* out) {
        out[0] = __uint_as_float(merge_word({std::uint16_t(high), std::uint16_t(low)}));
        out[1] = __uint_as_float(merge_word({std::uint16_t(high >> 16), std::uint16_t(low >> 16)}));
    }
    static __device__ __forceinline__ void split(const float* in, unsigned& high, unsigned& low) {
        const SplitWord a = split_word(__float_as_uint(in[0])), b = split_word(__float_as_uint(in[1]));
        high = a.high | unsigned{b.high} << 16;
        low = a.low | unsigned{b.low} << 16;
    }
    static __device__ __forceinline__ void narrow(const float* in, uint4 (&out)[kPlanes]) {
        if constexpr (kFormat == StateFormat::kFp32) {
            out[0] = {__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
                      __float_as_uint(in[3])};
        } else if constexpr (kSplit) {
            split(in, out[0].x, out[1].x);
            split(in + 2, out[0].y, out[1].y);
            split(in + 4, out[0].z, out[1].z);
            split(in + 6, out[0].w, out[1].w);
        } else {
            out[0] = {pack_halves(in[0], in[1]), pack_halves(in[2], in[3]), pack_halves(in[4], in[5]),
                      pack_halves(in[6], in[7])};
        }
    }
};

}  // namespace kvsim::tile
