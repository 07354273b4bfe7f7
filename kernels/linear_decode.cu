// One decode step of a gated-delta-rule layer, recurrent and buffered.
//
// Both forms are one kernel: the recurrent form is the buffered one with an empty ring and a flush at every
// token. With S0 the state at the last flush, c_i the sum of log gates from there to token i (t the new
// token) and w_i = exp(c_t - c_i):
//
//   x = exp(c_t) S0 k + sum_i w_i u_i (k_i.k)      u = beta (v - x)
//   o = exp(c_t) S0 q + sum_i w_i u_i (k_i.q) + u (k.q)
//   flush: S = exp(c_t) S0 + sum_i w_i u_i k_i^T + u k^T
//
// so the state is read once, for k and q together (KVBuffer, arXiv 2605.19049, section 3).
//
// A block of two warps owns 32 rows of one (request, value head) and holds them in registers: eight lanes
// share a row, 16 columns each, so that every load of a warp covers four full 128-byte lines. The ring is
// copied to shared memory before the state loads are issued, and its dot products are computed while the
// state is in flight: one memory latency, not two. Eight such blocks share a multiprocessor. On the H200
// larger blocks, more warps per row and a persistent pipeline of asynchronous copies were all slower: what
// binds is the instructions of a warp beside its loads.

#include <cuda_pipeline.h>

#include "kernels/launch.hpp"

namespace kvsim {
namespace {

constexpr int kDim = 128;  // k_dim and v_dim
constexpr int kRows = 32;  // state rows of a block
constexpr int kThreads = 64;
constexpr int kBlocksPerHead = kDim / kRows;
constexpr int kBlocksPerSm = 8;  // 128 registers a thread: the state tile takes 64, q and k 32
constexpr int kLanesPerRow = 8;
constexpr int kColumns = 16;  // of one lane: four groups of four, 32 apart
constexpr int kPasses = 4;    // rows of one lane; a warp holds 4 rows per pass
constexpr int kRowsPerWarp = 16;
constexpr int kKeyStride = 160;  // elements; 320 bytes keep the two records of a half-warp in distinct banks
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kNormEpsilon = 1e-6f;

// Four bf16 values as the two words they come in.
__device__ __forceinline__ void unpack(uint2 words, float* out) {
    out[0] = __uint_as_float(words.x << 16);
    out[1] = __uint_as_float(words.x & 0xffff0000u);
    out[2] = __uint_as_float(words.y << 16);
    out[3] = __uint_as_float(words.y & 0xffff0000u);
}

__device__ __forceinline__ uint2 pack(const float* in) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(in[0], in[1]);
    const __nv_bfloat162 high = __floats2bfloat162_rn(in[2], in[3]);
    return {reinterpret_cast<const unsigned&>(low), reinterpret_cast<const unsigned&>(high)};
}

// First column of group j of a lane.
__device__ __forceinline__ int column(int lane, int j) {
    return 4 * (lane % kLanesPerRow) + 32 * j;
}

// A lane's 16 values of a 128-vector in bf16.
__device__ __forceinline__ void load_columns(const __nv_bfloat16* vector, int lane, float (&out)[kColumns]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
        unpack(*reinterpret_cast<const uint2*>(vector + column(lane, j)), out + 4 * j);
}

__device__ __forceinline__ float dot(const float (&a)[kColumns], const float (&b)[kColumns]) {
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

__device__ __forceinline__ float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

// Shared memory of a block: keys, u slice and gates of the ring, and what is computed from them.
struct RingView {
    __nv_bfloat16* keys;  // [C][kKeyStride]
    __nv_bfloat16* u;     // [C][kRows]
    float* gate;          // [C] sums of log gates, then the weights w_i
    float2* overlap;      // [C] w_i (k_i.k), w_i (k_i.q)
    float* row_terms;     // [2][kRows] sums over the ring for k and for q

    __device__ RingView(char* memory, int capacity) {
        overlap = reinterpret_cast<float2*>(memory);
        row_terms = reinterpret_cast<float*>(overlap + capacity);
        gate = row_terms + 2 * kRows;
        keys = reinterpret_cast<__nv_bfloat16*>(gate + (capacity + 3) / 4 * 4);
        u = keys + capacity * kKeyStride;
    }
    static std::size_t bytes(int capacity) {
        // overlap is padded to 16 bytes by an even capacity so that the copies below are aligned
        const int even = (capacity + 1) / 2 * 2;
        return sizeof(float2) * even + sizeof(float) * (2 * kRows + (even + 3) / 4 * 4) +
               sizeof(__nv_bfloat16) * std::size_t(even) * (kKeyStride + kRows);
    }
};

// Starts the copy of a row's records into shared memory.
__device__ __forceinline__ void start_ring_copy(const LinearDecodeParams& p, const RingView& ring, int slot,
                                                int key_head, int value_head, int first_row, int fill) {
    const int capacity = p.ring_capacity;
    const std::size_t key_base = (std::size_t(slot) * p.shape.k_heads + key_head) * capacity;
    const std::size_t value_base = (std::size_t(slot) * p.shape.v_heads + value_head) * capacity;
    // Not unrolled: the addresses of several turns would not fit in registers beside the state tile.
    constexpr int kKeyPieces = kDim / 8;  // of 16 bytes
#pragma unroll 1
    for (int i = threadIdx.x; i < fill * kKeyPieces; i += kThreads) {
        const int record = i / kKeyPieces, piece = i % kKeyPieces;
        __pipeline_memcpy_async(ring.keys + record * kKeyStride + 8 * piece,
                                p.ring_k + (key_base + record) * kDim + 8 * piece, 16);
    }
    constexpr int kUPieces = kRows / 8;
#pragma unroll 1
    for (int i = threadIdx.x; i < fill * kUPieces; i += kThreads) {
        const int record = i / kUPieces, piece = i % kUPieces;
        __pipeline_memcpy_async(ring.u + record * kRows + 8 * piece,
                                p.ring_u + (value_base + record) * kDim + first_row + 8 * piece, 16);
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < fill; i += kThreads) {
        __pipeline_memcpy_async(ring.gate + i, p.ring_gate + value_base + i, 4);
    }
    __pipeline_commit();
}

// Overlaps of the records with the new key and query, then the ring's part of every row. Leaves the weights
// w_i in ring.gate and returns c_t, the sum of log gates up to the new token.
__device__ __forceinline__ float reduce_ring(const RingView& ring, int fill, float log_gate,
                                             const float (&k)[kColumns], const float (&q)[kColumns]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float total = log_gate + (fill > 0 ? ring.gate[fill - 1] : 0.0f);
    // Whole warps enter every turn of the loop: the shuffles need all lanes.
#pragma unroll 1
    for (int first = 4 * warp; first < fill; first += 4 * (kThreads / 32)) {
        const int record = first + lane / kLanesPerRow;
        const bool live = record < fill;
        float key[kColumns];
        load_columns(ring.keys + (live ? record : first) * kKeyStride, lane, key);
        const float with_k = row_sum(dot(key, k));
        const float with_q = row_sum(dot(key, q));
        if (live && lane % kLanesPerRow == 0) {
            const float weight = expf(total - ring.gate[record]);
            ring.overlap[record] = {weight * with_k, weight * with_q};
        }
    }
    __syncthreads();
    // Two threads per row: one sums for k, one for q.
    const int row = threadIdx.x % kRows;
    const bool for_q = threadIdx.x >= kRows;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = 0; i < fill; ++i) {
        const float2 overlap = ring.overlap[i];
        sum = fmaf(__bfloat162float(ring.u[i * kRows + row]), for_q ? overlap.y : overlap.x, sum);
    }
    ring.row_terms[threadIdx.x] = sum;
    for (int i = threadIdx.x; i < fill; i += kThreads) ring.gate[i] = expf(total - ring.gate[i]);
    __syncthreads();
    return total;
}

// Grid: x = value heads x blocks per head, y = rows of the batch.
template <bool kRing>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    linear_decode(const __grid_constant__ LinearDecodeParams p) {
    extern __shared__ __align__(16) char shared_memory[];
    const int value_head = blockIdx.x / kBlocksPerHead;
    const int first_row = blockIdx.x % kBlocksPerHead * kRows;
    const int batch_row = blockIdx.y;
    const int group = p.shape.v_heads / p.shape.k_heads;
    const int key_head = value_head / group;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    const std::size_t head_index = std::size_t(batch_row) * p.shape.v_heads + value_head;
    __nv_bfloat16* out = p.out + head_index * kDim + first_row;
    const int slot = p.slot[batch_row];
    if (slot < 0) {
        if (threadIdx.x < kRows) out[threadIdx.x] = __float2bfloat16(0.0f);
        return;
    }
    const int fill = kRing ? p.fill[batch_row] : 0;
    const bool flush = kRing ? p.flush[batch_row] != 0 : true;
    const std::size_t value_slot = std::size_t(slot) * p.shape.v_heads + value_head;

    // Everything that comes from memory is asked for before anything is used.
    const RingView ring(shared_memory, kRing ? (p.ring_capacity + 1) / 2 * 2 : 0);
    if constexpr (kRing) start_ring_copy(p, ring, slot, key_head, value_head, first_row, fill);

    float4* const state = reinterpret_cast<float4*>(p.state + (value_slot * kDim + first_row) * kDim);
    float4 s[kPasses][4];
    const int lane_row = warp * kRowsPerWarp + lane / kLanesPerRow;  // of pass 0; pass n is 4 n further
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float4* address = state + ((lane_row + 4 * pass) * kDim + column(lane, j)) / 4;
            // Read once and mostly left as it is: evict first. The recurrent form writes it back a moment
            // later.
            s[pass][j] = kRing ? __ldcs(address) : __ldcg(address);
        }
    }

    const int key_width = p.shape.k_heads * kDim;
    const __nv_bfloat16* qkv = p.qkv + std::size_t(batch_row) * (2 * key_width + p.shape.v_heads * kDim);
    float q[kColumns], k[kColumns];
    load_columns(qkv + key_head * kDim, lane, q);
    load_columns(qkv + key_width + key_head * kDim, lane, k);
    const float raw_a = __bfloat162float(p.a[head_index]);
    const float raw_b = __bfloat162float(p.b[head_index]);
    const float log_gate = -expf(p.a_log[value_head]) * softplus(raw_a + p.dt_bias[value_head]);
    const float beta = 1.0f / (1.0f + expf(-raw_b));
    // Lanes 2 n and 2 n + 1 of a row group end up with the sums for k and q of the row of pass n.
    const int own_row = lane_row + 4 * (lane % kLanesPerRow / 2);
    const float v = __bfloat162float(qkv[2 * key_width + value_head * kDim + first_row + own_row]);

    const float q_scale = rsqrtf(row_sum(dot(q, q)) + kNormEpsilon) * rsqrtf(float(kDim));
    const float k_scale = rsqrtf(row_sum(dot(k, k)) + kNormEpsilon);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        q[c] *= q_scale;
        k[c] *= k_scale;
    }
    const float kq = row_sum(dot(k, q));

    float total = log_gate;
    if constexpr (kRing) {
        __pipeline_wait_prior(0);
        __syncthreads();
        total = reduce_ring(ring, fill, log_gate, k, q);
    }
    const float state_decay = expf(total);

    float sums[8];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
        const auto& row = reinterpret_cast<const float(&)[kColumns]>(s[pass]);
        sums[2 * pass] = dot(row, k);
        sums[2 * pass + 1] = dot(row, q);
    }
    float own = state_decay * transpose_sum(sums, lane);
    if constexpr (kRing) own += ring.row_terms[(lane % 2) * kRows + own_row];
    const float other = __shfl_xor_sync(kAllLanes, own, 1);
    const float u = beta * (v - (lane % 2 ? other : own));
    if (lane % 2) out[own_row] = __float2bfloat16(fmaf(u, kq, own));

    if constexpr (kRing) {
        const std::size_t record = value_slot * p.ring_capacity + fill;
        if (lane % 2 == 0) p.ring_u[record * kDim + first_row + own_row] = __float2bfloat16(u);
        if (first_row == 0 && threadIdx.x == 0) p.ring_gate[record] = total;
        if (first_row == 0 && value_head % group == 0 && threadIdx.x < kLanesPerRow) {
            const std::size_t key_record =
                (std::size_t(slot) * p.shape.k_heads + key_head) * p.ring_capacity + fill;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                *reinterpret_cast<uint2*>(p.ring_k + key_record * kDim + column(lane, j)) = pack(k + 4 * j);
            }
        }
    }
    if (!flush) return;

    float row_u[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
        row_u[pass] = __shfl_sync(kAllLanes, u, (lane & ~(kLanesPerRow - 1)) + 2 * pass);
        auto& row = reinterpret_cast<float(&)[kColumns]>(s[pass]);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) row[c] = fmaf(row_u[pass], k[c], state_decay * row[c]);
    }
    if constexpr (kRing) {
        for (int i = 0; i < fill; ++i) {
            float key[kColumns];
            load_columns(ring.keys + i * kKeyStride, lane, key);
            const float weight = ring.gate[i];
#pragma unroll
            for (int pass = 0; pass < kPasses; ++pass) {
                const float w_u = weight * __bfloat162float(ring.u[i * kRows + lane_row + 4 * pass]);
                auto& row = reinterpret_cast<float(&)[kColumns]>(s[pass]);
#pragma unroll
                for (int c = 0; c < kColumns; ++c) row[c] = fmaf(w_u, key[c], row[c]);
            }
        }
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float4* address = state + ((lane_row + 4 * pass) * kDim + column(lane, j)) / 4;
            if constexpr (kRing) {
                __stcs(address, s[pass][j]);
            } else {
                __stcg(address, s[pass][j]);
            }
        }
    }
}

bool valid(const LinearDecodeParams& p, bool ring) {
    const LinearShape& s = p.shape;
    const bool shape = s.family == Family::kGdn && s.state == StateFormat::kFp32 && s.k_dim == kDim &&
                       s.v_dim == kDim && s.k_heads > 0 && s.v_heads > 0 && s.v_heads % s.k_heads == 0 &&
                       p.batch > 0 && p.batch <= 65535;
    const bool inputs = p.qkv && p.a && p.b && p.a_log && p.dt_bias && p.slot && p.state && p.out;
    const bool records = !ring || (p.ring_capacity >= 1 && p.ring_capacity <= kMaxRingCapacity && p.ring_k &&
                                   p.ring_u && p.ring_gate && p.fill && p.flush);
    return shape && inputs && records;
}

template <bool kRing>
cudaError_t launch(const LinearDecodeParams& p, cudaStream_t stream) {
    if (!valid(p, kRing)) return cudaErrorInvalidValue;
    const std::size_t shared = kRing ? RingView::bytes(p.ring_capacity) : 0;
    if (shared > 48 * 1024) {
        const cudaError_t error = cudaFuncSetAttribute(
            linear_decode<kRing>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
        if (error != cudaSuccess) return error;
    }
    const dim3 grid(p.shape.v_heads * kBlocksPerHead, p.batch);
    linear_decode<kRing><<<grid, kThreads, shared, stream>>>(p);
    return cudaGetLastError();
}

}  // namespace

cudaError_t launch_linear_recurrent(const LinearDecodeParams& params, cudaStream_t stream) {
    return launch<false>(params, stream);
}

cudaError_t launch_linear_buffered(const LinearDecodeParams& params, cudaStream_t stream) {
    return launch<true>(params, stream);
}

}  // namespace kvsim
