// Buffered decode of a gated-delta-rule layer by short blocks, which are many: no pipeline to fill and drain.
//
// With S0 the state at the last flush, c_i the sum of log gates from there to token i (t the new token) and
// w_i = exp(c_t - c_i):
//
//   x = exp(c_t) S0 k + sum_i w_i u_i (k_i.k)      u = beta (v - x)
//   o = exp(c_t) S0 q + sum_i w_i u_i (k_i.q) + u (k.q)
//   flush: S = exp(c_t) S0 + sum_i w_i u_i k_i^T + u k^T
//
// so the state is read once, for k and q together (KVBuffer, arXiv 2605.19049, section 3). A record holds k_i
// as it came in and u_i over its norm.
//
// A warp holds its rows of the state in registers, as operands of the tensor cores. The records are asked for
// before the state, and what depends on them alone is computed while the state is on its way: one memory
// latency, not two.
//
// Columns of the products are the key and the query in turn, four times over, so that every lane ends up with
// both sums of its rows: a lane 4 g + t has state rows g and g + 8 of each 16, and eight columns of each 32
// (ring_key_position).

#include "kernels/launch_checks.hpp"
#include "kernels/linear_fragment.cuh"
#include "kernels/linear_small.hpp"

namespace kvsim {
namespace {

using namespace ptx;

constexpr int kWarps = 2;
constexpr int kThreads = 32 * kWarps;
constexpr int kBlocksPerSm = 8;                      // 128 registers a thread: the state takes 64
constexpr int kChunk = 16;                           // records that the tensor cores take at once
constexpr float kQueryScale = 0.08838834764831845f;  // 128^-1/2
constexpr int kKeyStride = 2 * kDim;                 // bytes; pieces stay swizzled as in the ring

template <StateFormat kFormat>
struct Shape : Fragment<kFormat> {
    static constexpr int kRows = 16 * Fragment<kFormat>::kTiles * kWarps;  // of a block
    static constexpr int kBlocksPerHead = kDim / kRows;
    static constexpr int kUStride = 2 * kRows + 16;  // bytes; eight rows of 16 fall into distinct banks
};

// Shared memory of a block: the records.
template <StateFormat kFormat>
struct RingView {
    char* keys;   // [records][kKeyStride], as they lie in the ring
    char* u;      // [records][kUStride]
    float* gate;  // [records] sums of log gates

    __device__ RingView(char* memory, int capacity) {
        const int records = padded(capacity);
        keys = memory;
        u = keys + records * kKeyStride;
        gate = reinterpret_cast<float*>(u + records * Shape<kFormat>::kUStride);
    }
    static std::size_t bytes(int capacity) {
        return padded(capacity) * (kKeyStride + Shape<kFormat>::kUStride + sizeof(float));
    }
    // Chunks are whole: records beyond the last are zero.
    __host__ __device__ static int padded(int records) { return (records + kChunk - 1) / kChunk * kChunk; }
};

template <StateFormat kFormat>
struct SmallDecode {
    using S = Shape<kFormat>;
    const LinearParams& p;
    const RingView<kFormat> ring;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // Grid: x = blocks of the value heads of a key head, y = key heads, z = rows of the batch.
    const int key_head = blockIdx.y, row = blockIdx.z;
    const int value_head = (key_head * gridDim.x + blockIdx.x) / S::kBlocksPerHead;
    const int block_row = blockIdx.x % S::kBlocksPerHead * S::kRows;  // first state row of the block
    const int warp_row = threadIdx.x / 32 * 16 * S::kTiles;           // of the warp, in the block
    int slot, fill, start;
    bool flush;

    typename S::State state;
    unsigned kq[8][2];      // raw key (even g) or query (odd g) as operand B
    float x[S::kTiles][4];  // S k and S q of the rows
    float total, beta, k_scale, q_scale, kq_product;
    float u[S::kTiles][2];

    __device__ SmallDecode(const LinearParams& params, char* memory)
        : p(params), ring(memory, params.ring_capacity) {
        slot = p.slot[row];
        fill = p.fill[row];
        start = p.start[row];
        flush = p.flush[row] != 0;
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
    // First byte of a lane's pieces of row g of a tile.
    __device__ __forceinline__ char* state_row(void* plane, int tile, int half) const {
        return static_cast<char*>(plane) +
               (std::size_t(slot * p.shape.v_heads + value_head) * kDim + block_row + warp_row + 16 * tile +
                8 * half + g) *
                   S::kRowBytes +
               16 * t;
    }

    // Keys come as they lie in the ring. Records beyond the last of a chunk are zero.
    __device__ __forceinline__ void copy_ring() const {
        constexpr int kKeyBytes = 2 * kDim;
        const int records = RingView<kFormat>::padded(fill);
        const int size = p.ring_capacity * kKeyBytes, live = fill * kKeyBytes;
        const char* keys = ring_keys();
        int from = start * kKeyBytes + 16 * threadIdx.x;
#pragma unroll 1
        for (int to = 16 * threadIdx.x; to < records * kKeyBytes;
             to += 16 * kThreads, from += 16 * kThreads) {
            if (to < live) {
                copy_piece(ring.keys + to, keys + (from < size ? from : from - size));
            } else {
                *reinterpret_cast<uint4*>(ring.keys + to) = {};
            }
        }
        constexpr int kUPieces = S::kRows / 8;
        const char* us = static_cast<const char*>(p.ring_u) + value_ring() * kKeyBytes;
#pragma unroll 1
        for (int i = threadIdx.x; i < records * kUPieces; i += kThreads) {
            const int record = i / kUPieces, piece = i % kUPieces;
            char* to = ring.u + record * S::kUStride + 16 * piece;
            if (record < fill) {
                const int at = index(record);
                copy_piece(to, us + at * kKeyBytes + 16 * ((block_row / 8 + piece) ^ (at & 7)));
            } else {
                *reinterpret_cast<uint4*>(to) = {};
            }
        }
        const float* gates = p.ring_gate + value_ring();
        if (threadIdx.x < fill) copy_word(ring.gate + threadIdx.x, gates + index(threadIdx.x));
    }
    // Of a piece of a key in the ring.
    __device__ __forceinline__ int swizzled(int piece, int record) const {
        return piece ^ (index(record) & 7);
    }

    __device__ __forceinline__ void load_state(std::uint64_t policy) {
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const char* from = state_row(p.state, m, h);
#pragma unroll
                for (int i = 0; i < S::kPieces; ++i) state[m][h][i] = S::load(from + 64 * i, policy);
            }
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
                const uint2 a = *reinterpret_cast<const uint2*>(vector + 32 * j + 4 * t);
                const uint2 b = *reinterpret_cast<const uint2*>(vector + 32 * j + 16 + 4 * t);
                w = {a.x, a.y, b.x, b.y};
            } else {
                w = *reinterpret_cast<const uint4*>(vector + 32 * j + 8 * t);
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

    // Records beyond the last are zero: their u is.
    __device__ __forceinline__ void load_u(int m, int first, unsigned (&a)[4]) const {
        const int record = first + lane % 8 + 8 * (lane / 16);
        ldmatrix_trans(a, ring.u + record * S::kUStride + 2 * (warp_row + 16 * m) + 16 * (lane / 8 % 2));
    }

    // x = sum_i w_i u_i (k_i.k), sum_i w_i u_i (k_i.q).
    __device__ __forceinline__ void ring_terms() {
#pragma unroll 1
        for (int first = 0; first < fill; first += kChunk) {
            float overlap[4] = {}, second[4] = {};  // two sums, so that fewer products wait for each other
            const char* keys = ring.keys + (first + lane % 16) * kKeyStride;
#pragma unroll
            for (int s = 0; s < 8; ++s) {
                unsigned a[4];
                ldmatrix(a, keys + 16 * swizzled(2 * s + lane / 16, first + lane % 16));
                mma(s % 2 ? second : overlap, a[0], a[1], a[2], a[3], kq[s][0], kq[s][1]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) overlap[i] += second[i];
            const float w0 = weight(first + g), w1 = weight(first + g + 8);
            unsigned high[2], low[2];
            split_pair(overlap[0] * (w0 * k_scale), overlap[1] * (w0 * q_scale), high[0], low[0]);
            split_pair(overlap[2] * (w1 * k_scale), overlap[3] * (w1 * q_scale), high[1], low[1]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                high[i] = movmatrix(high[i]);
                low[i] = movmatrix(low[i]);
            }
#pragma unroll
            for (int m = 0; m < S::kTiles; ++m) {
                unsigned a[4];
                load_u(m, first, a);
                mma(x[m], a[0], a[1], a[2], a[3], high[0], high[1]);
                mma(x[m], a[0], a[1], a[2], a[3], low[0], low[1]);
            }
        }
    }
    __device__ __forceinline__ float weight(int record) const {
        return record < fill ? __expf(total - ring.gate[record]) : 0.0f;
    }

    // x += exp(c) S k, exp(c) S q.
    __device__ __forceinline__ void state_terms() {
        const float decay = __expf(total);
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m) {
            float sums[4][4] = {};  // several, so that fewer products wait for each other
#pragma unroll
            for (int i = 0; i < S::kPieces; ++i) {
                const uint4 &r0 = state[m][0][i], &r1 = state[m][1][i];
                float(&first)[4] = sums[2 * (i % 2)], (&second)[4] = sums[2 * (i % 2) + 1];
                if constexpr (S::kWide) {
                    const unsigned w0 = kq[i][0], w1 = kq[i][1];
                    mma_tf32(first, __uint_as_float(r0.x), __uint_as_float(r1.x), __uint_as_float(r0.y),
                             __uint_as_float(r1.y), w0 << 16, w0 & 0xffff0000u);
                    mma_tf32(second, __uint_as_float(r0.z), __uint_as_float(r1.z), __uint_as_float(r0.w),
                             __uint_as_float(r1.w), w1 << 16, w1 & 0xffff0000u);
                } else {
                    mma(first, r0.x, r1.x, r0.y, r1.y, kq[2 * i][0], kq[2 * i][1]);
                    mma(second, r0.z, r1.z, r0.w, r1.w, kq[2 * i + 1][0], kq[2 * i + 1][1]);
                }
            }
            float sum[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                x[m][2 * h] = fmaf(decay * k_scale, sum[2 * h], x[m][2 * h]);
                x[m][2 * h + 1] = fmaf(decay * q_scale, sum[2 * h + 1], x[m][2 * h + 1]);
            }
        }
    }

    // u over the key's norm, and the outputs.
    __device__ __forceinline__ void write_rows(const float (&v)[S::kTiles][2]) {
        const int at = index(fill);
        __nv_bfloat16* out = p.out + std::size_t(row * p.shape.v_heads + value_head) * kDim;
        __nv_bfloat16* us = static_cast<__nv_bfloat16*>(p.ring_u) + (value_ring() + at) * kDim;
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m) {
            float o[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                u[m][h] = beta * (v[m][h] - x[m][2 * h]) * k_scale;
                o[h] = fmaf(u[m][h], kq_product, x[m][2 * h + 1]);
            }
            // Lane t writes one of the four.
            const int row = block_row + warp_row + 16 * m + 8 * (t % 2) + g;
            __nv_bfloat16* to = t < 2 ? out + row : us + ring_u_position(RecordFormat::kBf16, row, at);
            *to = __float2bfloat16(t == 0 ? o[0] : t == 1 ? o[1] : t == 2 ? u[m][0] : u[m][1]);
        }
    }
    // The parts of the new record that belong to a head as a whole.
    __device__ __forceinline__ void write_key_and_gate() const {
        if (block_row != 0) return;
        const int at = index(fill);
        if (threadIdx.x == 0) p.ring_gate[value_ring() + at] = total;
        if (blockIdx.x != 0) return;
        unsigned* to = reinterpret_cast<unsigned*>(ring_keys() + at * (2 * kDim));
        for (int i = threadIdx.x; i < kDim / 2; i += kThreads)
            to[ring_key_position(kFormat, 2 * i, at) / 2] = reinterpret_cast<const unsigned*>(key())[i];
    }

    // S = exp(c) S + sum_i w_i u_i k_i^T + u k^T, and back to memory.
    __device__ __forceinline__ void fold() {
        const float decay = __expf(total);
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m) {
            typename S::LowRow low[2];
            if constexpr (kFormat == StateFormat::kSplit) {
#pragma unroll
                for (int h = 0; h < 2; ++h)
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        low[h][j] = S::load(state_row(p.state_low, m, h) + 64 * j);
                        state[m][h][j] = S::load(state_row(p.state, m, h) + 64 * j);
                    }
            }
            unsigned high[2][4], rest[2][4];
#pragma unroll
            for (int c = 0; c < 2; ++c)
                if (c * kChunk < fill) fold_operands(m, c * kChunk, high[c], rest[c]);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float c[4][4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    // The key's lanes are those of even g.
                    const unsigned k = __shfl_sync(kAllLanes, kq[2 * j + i / 2][i % 2], t);
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        const float2 s = S::read_pair(state[m][h], low[h], j, i);
                        c[i][2 * h] = fmaf(u[m][h], low_half(k), decay * s.x);
                        c[i][2 * h + 1] = fmaf(u[m][h], high_half(k), decay * s.y);
                    }
                }
#pragma unroll
                for (int chunk = 0; chunk < 2; ++chunk) {
                    if (chunk * kChunk >= fill) break;
                    const int record = chunk * kChunk + lane % 16;
                    const char* keys = ring.keys + record * kKeyStride;
                    unsigned b[2][4];
                    ldmatrix_trans(b[0], keys + 16 * swizzled(4 * j + lane / 16, record));
                    ldmatrix_trans(b[1], keys + 16 * swizzled(4 * j + 2 + lane / 16, record));
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const unsigned b0 = b[i / 2][2 * (i % 2)], b1 = b[i / 2][2 * (i % 2) + 1];
                        mma(c[i], high[chunk][0], high[chunk][1], high[chunk][2], high[chunk][3], b0, b1);
                        mma(c[i], rest[chunk][0], rest[chunk][1], rest[chunk][2], rest[chunk][3], b0, b1);
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int h = 0; h < 2; ++h)
                        S::write_pair(state[m][h], low[h], j, i, c[i][2 * h], c[i][2 * h + 1]);
            }
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int i = 0; i < S::kPieces; ++i)
                    S::store(state_row(p.state, m, h) + 64 * i, state[m][h][i]);
            if constexpr (kFormat == StateFormat::kSplit) {
#pragma unroll
                for (int h = 0; h < 2; ++h)
#pragma unroll
                    for (int i = 0; i < 4; ++i) S::store(state_row(p.state_low, m, h) + 64 * i, low[h][i]);
            }
        }
    }
    // w_i u_i of a chunk of records as two bf16 operands.
    __device__ __forceinline__ void fold_operands(int m, int first, unsigned (&high)[4],
                                                  unsigned (&rest)[4]) const {
        unsigned a[4];
        load_u(m, first, a);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int record = first + 2 * t + 8 * i;
            const float w0 = weight(record), w1 = weight(record + 1);
#pragma unroll
            for (int h = 0; h < 2; ++h)
                split_pair(w0 * low_half(a[2 * i + h]), w1 * high_half(a[2 * i + h]), high[2 * i + h],
                           rest[2 * i + h]);
        }
    }

    __device__ __forceinline__ void run() {
        // None of the four is negative but the slot. Asked together, they are read together: a branch on the
        // slot alone would let the others wait for it.
        if ((slot | fill | start | int(flush)) < 0) {
            __nv_bfloat16* out = p.out + std::size_t(row * p.shape.v_heads + value_head) * kDim + block_row;
            for (int i = threadIdx.x; i < S::kRows; i += kThreads) out[i] = __float2bfloat16(0.0f);
            return;
        }
        // Everything that comes from memory is asked for before anything is used.
        if (fill > 0) copy_ring();
        // The planes of a split state are read once more when it flushes.
        load_state(kFormat == StateFormat::kSplit && flush ? evict_last() : evict_first());
        load_token();
        const std::size_t head_index = std::size_t(row * p.shape.v_heads + value_head);
        const float raw_a = __bfloat162float(p.a[head_index]), raw_b = __bfloat162float(p.b[head_index]);
        const float rate = -expf(p.a_log[value_head]), bias = p.dt_bias[value_head];
        const __nv_bfloat16* values =
            key() + (p.shape.k_heads - key_head + value_head) * kDim + block_row + warp_row + g;
        float v[S::kTiles][2];
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) v[m][h] = __bfloat162float(values[16 * m + 8 * h]);
        token_products();
        total = log_gate_at_rate(rate, raw_a + bias);
        beta = 1.0f / (1.0f + __expf(-raw_b));
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) x[m][i] = 0.0f;
        if (fill > 0) {
            finish_copies();
            total += ring.gate[fill - 1];
            ring_terms();
        }
        state_terms();
        write_rows(v);
        write_key_and_gate();
        if (flush) fold();
    }
};

template <StateFormat kFormat>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    linear_buffered_small(const __grid_constant__ LinearParams p) {
    extern __shared__ __align__(16) char memory[];
    SmallDecode<kFormat>(p, memory).run();
}

template <StateFormat kFormat>
cudaError_t launch(const LinearParams& p, cudaStream_t stream) {
    const dim3 grid(p.shape.v_heads / p.shape.k_heads * Shape<kFormat>::kBlocksPerHead, p.shape.k_heads,
                    p.batch);
    linear_buffered_small<kFormat><<<grid, kThreads, RingView<kFormat>::bytes(p.ring_capacity), stream>>>(p);
    return cudaGetLastError();
}

}  // namespace

cudaError_t launch_linear_buffered_small(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !has_valid_ring(params) || params.tokens != 1 ||
        params.ring_capacity > kMaxSmallRingCapacity || params.shape.records != RecordFormat::kBf16)
        return cudaErrorInvalidValue;
    switch (params.shape.state) {
        case StateFormat::kFp32:
            return launch<StateFormat::kFp32>(params, stream);
        case StateFormat::kBf16:
            return launch<StateFormat::kBf16>(params, stream);
        case StateFormat::kSplit:
            return launch<StateFormat::kSplit>(params, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace kvsim
