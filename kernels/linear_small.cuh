// What a block of buffered decode by short blocks reads, computes and writes, but for the flush
// (linear_small.cu).
#pragma once

#include "kernels/linear_fragment.cuh"
#include "kernels/linear_small.hpp"

namespace kvsim::small_decode {

using namespace ptx;
using pipelined::kChunk;

constexpr int kWarps = 2;
constexpr int kThreads = 32 * kWarps;
constexpr int kBlocksPerSm = 8;       // 128 registers a thread: the state takes 64
constexpr int kKeyStride = 2 * kDim;  // bytes; pieces stay swizzled as in the ring

template <StateFormat kFormat>
struct Shape : Lines<kFormat> {
    static constexpr int kRows = Lines<kFormat>::kWarpRows * kWarps;  // of a block
    static constexpr int kBlocksPerHead = kDim / kRows;
    static constexpr int kUStride = 2 * kRows + 16;  // bytes; eight rows of 16 fall into distinct banks
    static_assert(kDim % kRows == 0);
};

// Shared memory of a block: the records, of which u is that of the block's rows.
template <int kUStride>
struct RingView {
    char* keys;   // [records][kKeyStride], as they lie in the ring
    char* u;      // [records][kUStride]
    float* gate;  // [records] sums of log gates

    __device__ RingView(char* memory, int capacity) {
        const int records = padded(capacity);
        keys = memory;
        u = keys + records * kKeyStride;
        gate = reinterpret_cast<float*>(u + records * kUStride);
    }
    static std::size_t bytes(int capacity) {
        return padded(capacity) * (kKeyStride + kUStride + sizeof(float));
    }
    // The tensor cores take whole chunks; what lies beyond the last record is anything.
    __host__ __device__ static int padded(int records) { return (records + kChunk - 1) / kChunk * kChunk; }
};

// kChunks: of records that a ring can hold.
template <StateFormat kFormat, int kChunks>
struct SmallTerms {
    using S = Shape<kFormat>;
    using Ring = RingView<S::kUStride>;
    const LinearParams& p;
    const Ring ring;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // Grid: x = blocks of the value heads of a key head, y = key heads, z = rows of the batch.
    const int key_head = blockIdx.y, row = blockIdx.z;
    const int value_head = (key_head * gridDim.x + blockIdx.x) / S::kBlocksPerHead;
    const int block_row = blockIdx.x % S::kBlocksPerHead * S::kRows;  // first state row of the block
    const int warp_row = threadIdx.x / 32 * S::kWarpRows;             // of the warp, in the block
    int slot, fill, start, flush;                                     // of the row

    typename S::State state;
    // Raw key (even g) or query (odd g) as operands B: the whole, and the half lines that this lane takes.
    unsigned kq[8][2], half_lines[S::kLines][S::kPairs];
    float overlap[kChunks][4];  // of records g and g + 8 of a chunk with key and query
    float k_scale, q_scale, kq_product;
    __nv_bfloat16 raw_a, raw_b;
    float a_log, bias;
    float total, beta;  // total: sum of log gates up to the new token
    // Of rows g and g + 8 of each 16, in all four lanes.
    __nv_bfloat16 v[S::kSums][2];
    float x[S::kSums][4];  // S k and S q
    float u[S::kSums][2];

    __device__ SmallTerms(const LinearParams& params, char* memory)
        : p(params), ring(memory, params.ring_capacity) {
        slot = load_now(p.slot + row);
        fill = load_now(p.fill + row);
        start = load_now(p.start + row);
        flush = load_now(p.flush + row);
    }

    __device__ __forceinline__ int index(int record) const {
        const int i = start + record;
        return i < p.ring_capacity ? i : i - p.ring_capacity;
    }
    __device__ __forceinline__ char* ring_keys() const {
        return reinterpret_cast<char*>(p.ring_k) +
               std::size_t((slot * p.shape.k_heads + key_head) * p.ring_capacity) * (2 * kDim);
    }
    __device__ __forceinline__ std::size_t value_ring() const {
        return std::size_t(slot * p.shape.v_heads + value_head) * p.ring_capacity;
    }
    // A lane's piece of the first line of its first row; offset(m, h, j) further is that of state[m][h][j].
    __device__ __forceinline__ char* lane_rows(void* plane) const {
        const int in_state =
            ((value_head * kDim + block_row + warp_row + lane / 8) * S::kRowBytes) + 16 * (lane % 8);
        return static_cast<char*>(plane) + std::size_t(slot * p.shape.v_heads) * (kDim * S::kRowBytes) +
               in_state;
    }

    // Keys come as they lie in the ring.
    __device__ __forceinline__ void copy_ring() const {
        constexpr int kUPieces = S::kRows / 8;
        const int size = p.ring_capacity * kKeyStride, live = fill * kKeyStride;
        const char* keys = ring_keys();
        int from = start * kKeyStride + 16 * threadIdx.x;
#pragma unroll 1
        for (int to = 16 * threadIdx.x; to < live; to += 16 * kThreads, from += 16 * kThreads)
            copy_piece(ring.keys + to, keys + (from < size ? from : from - size));
        // When it folds records, the keys of those beyond the last meet zeros, but must be numbers.
        if (flush) {
            for (int to = live + 16 * threadIdx.x; to < Ring::padded(fill) * kKeyStride; to += 16 * kThreads)
                *reinterpret_cast<uint4*>(ring.keys + to) = {};
        }
        const char* us = static_cast<const char*>(p.ring_u) + value_ring() * (2 * kDim);
        const int piece = threadIdx.x % kUPieces;
#pragma unroll 1
        for (int record = threadIdx.x / kUPieces; record < fill; record += kThreads / kUPieces) {
            const int at = index(record);
            copy_piece(ring.u + record * S::kUStride + 16 * piece,
                       us + at * (2 * kDim) + 16 * ((block_row / 8 + piece) ^ (at & 7)));
        }
        if (threadIdx.x < fill)
            copy_word(ring.gate + threadIdx.x, p.ring_gate + value_ring() + index(threadIdx.x));
    }
    // Of a piece of a key in the ring.
    __device__ __forceinline__ int swizzled(int piece, int record) const {
        return piece ^ (index(record) & 7);
    }

    // keep: what is read will be written.
    __device__ __forceinline__ void load_state(bool keep) {
        // Two copies of the loads, since compilers mix others with what follows, which waits for other data.
        if (keep) {
            load_state(evict_last());
        } else {
            load_state(evict_first());
        }
    }
    __device__ __forceinline__ void load_state(std::uint64_t policy) {
        const char* from = lane_rows(p.state);
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int j = 0; j < S::kLines; ++j)
                    state[m][h][j] = S::load(from + S::offset(m, h, j), policy);
    }

    __device__ __forceinline__ const __nv_bfloat16* key() const {
        return p.qkv + std::size_t(row) * (2 * p.shape.k_heads + p.shape.v_heads) * kDim +
               (p.shape.k_heads + key_head) * kDim;
    }
    __device__ __forceinline__ void load_token() {
        const __nv_bfloat16* vector = key() - (g % 2 ? p.shape.k_heads * kDim : 0);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            uint4 w;
            if constexpr (S::kWide) {
                const uint2 a = load_now(reinterpret_cast<const uint2*>(vector + 32 * j + 4 * t));
                const uint2 b = load_now(reinterpret_cast<const uint2*>(vector + 32 * j + 16 + 4 * t));
                w = {a.x, a.y, b.x, b.y};
            } else {
                w = load_now(reinterpret_cast<const uint4*>(vector + 32 * j + 8 * t));
            }
            kq[2 * j][0] = w.x;
            kq[2 * j][1] = w.y;
            kq[2 * j + 1][0] = w.z;
            kq[2 * j + 1][1] = w.w;
        }
    }
    // Norms and the product of key and query.
    __device__ __forceinline__ void token_products() {
        float gram[4] = {};
#pragma unroll
        for (int s = 0; s < 8; ++s) mma(gram, kq[s][0], kq[s][0], kq[s][1], kq[s][1], kq[s][0], kq[s][1]);
        // This lane's row is the key's or the query's; the other comes from a neighbour.
        const float other0 = __shfl_xor_sync(kAllLanes, gram[0], 4),
                    other1 = __shfl_xor_sync(kAllLanes, gram[1], 4);
        const bool query = g % 2;
        k_scale = rsqrtf((query ? other0 : gram[0]) + kNormEpsilon);
        q_scale = rsqrtf((query ? gram[1] : other1) + kNormEpsilon) * kQueryScale;
        kq_product = (query ? gram[0] : gram[1]) * q_scale;
    }

    // Records beyond the last count as zero.
    __device__ __forceinline__ void load_u(int n, int first, unsigned (&a)[4]) const {
        const int record = first + lane % 8 + 8 * (lane / 16);
        ldmatrix_trans(a, ring.u + record * S::kUStride + 2 * (warp_row + 16 * n) + 16 * (lane / 8 % 2));
        const unsigned low = live_pair(first + 2 * t), high = live_pair(first + 2 * t + 8);
        a[0] &= low;
        a[1] &= low;
        a[2] &= high;
        a[3] &= high;
    }
    // Mask of two records in a word.
    __device__ __forceinline__ unsigned live_pair(int record) const {
        return record + 1 < fill ? 0xffffffffu : record < fill ? 0xffffu : 0u;
    }

    // k_i.k and k_i.q of all records, normalised.
    __device__ __forceinline__ void ring_overlaps() {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            if (c * kChunk >= fill) break;
            float second[4] = {};  // two sums, so that fewer products wait for each other
#pragma unroll
            for (int i = 0; i < 4; ++i) overlap[c][i] = 0.0f;
            const int record = c * kChunk + lane % 16;
            const char* keys = ring.keys + record * kKeyStride;
#pragma unroll
            for (int s = 0; s < 8; ++s) {
                unsigned a[4];
                ldmatrix(a, keys + 16 * swizzled(2 * s + lane / 16, record));
                mma(s % 2 ? second : overlap[c], a[0], a[1], a[2], a[3], kq[s][0], kq[s][1]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
                overlap[c][i] = (overlap[c][i] + second[i]) * (i % 2 ? q_scale : k_scale);
        }
    }
    // x = sum_i w_i u_i (k_i.k), sum_i w_i u_i (k_i.q).
    __device__ __forceinline__ void ring_terms() {
#pragma unroll
        for (int n = 0; n < S::kSums; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) x[n][i] = 0.0f;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            if (c * kChunk >= fill) break;
            const int first = c * kChunk;
            float weighted[4];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const bool live = first + g + 8 * h < fill;
                const float w = weight(first + g + 8 * h);
                weighted[2 * h] = live ? overlap[c][2 * h] * w : 0.0f;
                weighted[2 * h + 1] = live ? overlap[c][2 * h + 1] * w : 0.0f;
            }
            unsigned high[2], low[2];
            split_pair(weighted[0], weighted[1], high[0], low[0]);
            split_pair(weighted[2], weighted[3], high[1], low[1]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                high[i] = movmatrix(high[i]);
                low[i] = movmatrix(low[i]);
            }
#pragma unroll
            for (int n = 0; n < S::kSums; ++n) {
                unsigned a[4];
                load_u(n, first, a);
                mma(x[n], a[0], a[1], a[2], a[3], high[0], high[1]);
                mma(x[n], a[0], a[1], a[2], a[3], low[0], low[1]);
            }
        }
    }
    __device__ __forceinline__ float weight(int record) const {
        return __expf(total - ring.gate[record]);
    }

    // The half line that belongs to column g of the products with the state.
    __device__ __forceinline__ void pick_half_lines() {
        constexpr int kSteps = S::kPairs / 2;  // of the tensor cores a half line
#pragma unroll
        for (int j = 0; j < S::kLines; ++j)
#pragma unroll
            for (int i = 0; i < S::kPairs; ++i) {
                const int step = 2 * kSteps * j + i / 2;
                half_lines[j][i] = g & 2 ? kq[step + kSteps][i % 2] : kq[step][i % 2];
            }
    }

    // x += exp(c) S k, exp(c) S q.
    __device__ __forceinline__ void state_terms() {
        const float decay = __expf(total);
        const float k_factor = decay * k_scale, q_factor = decay * q_scale;
        // The two lanes that have the halves of row g of eight.
        const int first_half = 8 * (g % 4) + 2 * (g / 4), second_half = first_half + 5;
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m) {
            float sums[2][4] = {};  // two, so that fewer products wait for each other
#pragma unroll
            for (int j = 0; j < S::kLines; ++j) {
                const uint4 &r0 = state[m][0][j], &r1 = state[m][1][j];
                if constexpr (S::kWide) {
                    const unsigned w0 = half_lines[j][0], w1 = half_lines[j][1];
                    mma_tf32(sums[0], __uint_as_float(r0.x), __uint_as_float(r1.x), __uint_as_float(r0.y),
                             __uint_as_float(r1.y), w0 << 16, w0 & 0xffff0000u);
                    mma_tf32(sums[1], __uint_as_float(r0.z), __uint_as_float(r1.z), __uint_as_float(r0.w),
                             __uint_as_float(r1.w), w1 << 16, w1 & 0xffff0000u);
                } else {
                    mma(sums[0], r0.x, r1.x, r0.y, r1.y, half_lines[j][0], half_lines[j][1]);
                    mma(sums[1], r0.z, r1.z, r0.w, r1.w, half_lines[j][2], half_lines[j][3]);
                }
            }
            // Lanes t = 0 and 1 hand out rows g < 4 of the eight, the others the rest.
            const float with_k = t < 2 ? sums[0][0] + sums[1][0] : sums[0][2] + sums[1][2];
            const float with_q = t < 2 ? sums[0][1] + sums[1][1] : sums[0][3] + sums[1][3];
            const float k_sum =
                __shfl_sync(kAllLanes, with_k, first_half) + __shfl_sync(kAllLanes, with_k, second_half);
            const float q_sum =
                __shfl_sync(kAllLanes, with_q, first_half) + __shfl_sync(kAllLanes, with_q, second_half);
            float(&to)[4] = x[m / 2];
            to[2 * (m % 2)] = fmaf(k_factor, k_sum, to[2 * (m % 2)]);
            to[2 * (m % 2) + 1] = fmaf(q_factor, q_sum, to[2 * (m % 2) + 1]);
        }
    }

    // u over the key's norm, and the outputs.
    __device__ __forceinline__ void write_rows() {
        const int at = index(fill);
        __nv_bfloat16* out = p.out + std::size_t(row * p.shape.v_heads + value_head) * kDim;
        __nv_bfloat16* us = static_cast<__nv_bfloat16*>(p.ring_u) + (value_ring() + at) * kDim;
#pragma unroll
        for (int n = 0; n < S::kSums; ++n) {
            float o[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                u[n][h] = beta * (__bfloat162float(v[n][h]) - x[n][2 * h]) * k_scale;
                o[h] = fmaf(u[n][h], kq_product, x[n][2 * h + 1]);
            }
            // Lane t writes one of the four.
            const int row = block_row + warp_row + 16 * n + 8 * (t % 2) + g;
            __nv_bfloat16* to = t < 2 ? out + row : us + ring_u_position(RecordFormat::kBf16, row, at);
            *to = __float2bfloat16(t == 0 ? o[0] : t == 1 ? o[1] : t == 2 ? u[n][0] : u[n][1]);
        }
    }
    // The parts of the new record that belong to a head as a whole.
    __device__ __forceinline__ void write_key_and_gate() const {
        if (block_row != 0) return;
        const int at = index(fill);
        if (threadIdx.x == 0) p.ring_gate[value_ring() + at] = total;
        // Lanes 0 to 3 have the key over first halves of lines, lanes 8 to 11 over second ones.
        if (blockIdx.x != 0 || (threadIdx.x & ~11u) != 0) return;
        char* to = ring_keys() + at * (2 * kDim) + 4 * t;
#pragma unroll
        for (int j = 0; j < S::kLines; ++j)
#pragma unroll
            for (int i = 0; i < S::kPairs; ++i)
                *reinterpret_cast<unsigned*>(to + 16 * (((2 * j + g / 2) * S::kPairs + i) ^ (at & 7))) =
                    half_lines[j][i];
    }

    __device__ __forceinline__ void load_head() {
        const std::size_t head_index = std::size_t(row * p.shape.v_heads + value_head);
        raw_a = load_now(p.a + head_index);
        raw_b = load_now(p.b + head_index);
        a_log = load_now(p.a_log + value_head);
        bias = load_now(p.dt_bias + value_head);
        const __nv_bfloat16* values =
            key() + (p.shape.k_heads - key_head + value_head) * kDim + block_row + warp_row + g;
#pragma unroll
        for (int n = 0; n < S::kSums; ++n)
#pragma unroll
            for (int h = 0; h < 2; ++h) v[n][h] = load_now(values + 16 * n + 8 * h);
    }
};

}  // namespace kvsim::small_decode
