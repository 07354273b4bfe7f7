// Buffered decode of a gated-delta-rule layer by short blocks, for small batches.
//
// With S0 the state at the last flush, c_i the sum of log gates from there to token i (t the new token) and
// w_i = exp(c_t - c_i):
//
//   x = exp(c_t) S0 k + sum_i w_i u_i (k_i.k)      u = beta (v - x)
//   o = exp(c_t) S0 q + sum_i w_i u_i (k_i.q) + u (k.q)
//   flush: S = exp(c_t) S0 + sum_i w_i u_i k_i^T + u k^T
//
// so the state is read once, for k and q together (KVBuffer, arXiv 2605.19049, section 3). A record holds k_i
// as it came in and u_i over its norm; k and q are normalised.
//
// The ring is copied to shared memory before the state loads are issued, and its dot products are computed
// while the state is in flight: one memory latency, not two.

#include "kernels/launch_checks.hpp"
#include "kernels/linear_small.hpp"
#include "kernels/linear_tile.cuh"

namespace kvsim {
namespace {

using namespace tile;

constexpr StateFormat kFormat = StateFormat::kFp32;
constexpr int kTurn = 8;  // records whose overlaps the block computes at a time
// Words. With it, what a warp reads of its records of a turn (two neighbours and the two that lie four
// further) is in distinct banks.
constexpr int kKeyStride = kDim / 2 + 4;
static_assert(kMaxSmallRingCapacity <= kThreads, "one thread per gate of a ring");

// A lane's columns of a key of the ring. Four neighbouring columns are two words there, in two pieces.
__device__ __forceinline__ void load_key(const unsigned* key, int lane, Columns& out) {
    const unsigned* words = key + ring_key_position(column<kFormat>(lane, 0), 0) / 2;
#pragma unroll
    for (int j = 0; j < kGroups<kFormat>; ++j) {
        const int first = column<kFormat>(0, j);
        unpack(uint2{words[ring_key_position(first, 0) / 2], words[ring_key_position(first + 2, 0) / 2]},
               out + 4 * j);
    }
}

// Shared memory of a block: the ring, and what is computed from it.
struct RingView {
    unsigned* keys;    // [C][kKeyStride], ordered as in the ring but not swizzled
    __nv_bfloat16* u;  // [C][kRows]
    float* gate;       // [C] sums of log gates, then the weights w_i
    float2* overlap;   // [C] w_i (k_i.k), w_i (k_i.q)
    float* row_terms;  // [2][kRows] sums over the ring for k and for q

    __device__ RingView(char* memory, int capacity) {
        const int records = padded(capacity);
        overlap = reinterpret_cast<float2*>(memory);
        row_terms = reinterpret_cast<float*>(overlap + records);
        gate = row_terms + 2 * kRows;
        keys = reinterpret_cast<unsigned*>(gate + records);
        u = reinterpret_cast<__nv_bfloat16*>(keys + records * kKeyStride);
    }
    static std::size_t bytes(int capacity) {
        return padded(capacity) * (sizeof(float2) + sizeof(float) + sizeof(unsigned) * kKeyStride +
                                   sizeof(__nv_bfloat16) * kRows) +
               sizeof(float) * 2 * kRows;
    }

  private:
    // In fours, so that every array starts at a multiple of 16 bytes.
    __host__ __device__ static int padded(int capacity) { return (capacity + 3) / 4 * 4; }
};

// Where the records of one (request, value head, block of rows) lie in device memory.
struct RingSource {
    __nv_bfloat16* keys;  // [C][kDim]
    __nv_bfloat16* u;     // [C][kDim]
    float* gate;          // [C]
    int first_row, start, capacity;

    RingSource() = default;
    __device__ __forceinline__ RingSource(const LinearParams& p, const Place& place, int slot) {
        const std::size_t key_ring = std::size_t(slot) * p.shape.k_heads + place.key_head;
        const std::size_t value_ring = std::size_t(slot) * p.shape.v_heads + place.value_head;
        keys = p.ring_k + key_ring * p.ring_capacity * kDim;
        u = static_cast<__nv_bfloat16*>(p.ring_u) + value_ring * p.ring_capacity * kDim;
        gate = p.ring_gate + value_ring * p.ring_capacity;
        first_row = place.first_row;
        start = p.start[place.batch_row];
        capacity = p.ring_capacity;
    }
    __device__ __forceinline__ int index(int record) const {
        const int i = start + record;
        return i < capacity ? i : i - capacity;
    }

    // Where the new token's u of the lane's own row goes.
    __device__ __forceinline__ __nv_bfloat16* new_u(int fill, const Place& place) const {
        const int at = index(fill);
        return u + at * kDim + ring_u_position(RecordFormat::kBf16, first_row + place.own_row, at);
    }

    // Starts the copy of `count` records into shared memory. Not unrolled: the addresses of several turns
    // would not fit in registers beside the state tile.
    __device__ __forceinline__ void start_copy(const RingView& ring, int count) const {
        const std::uint64_t policy = evict_first();
        constexpr int kKeyPieces = kDim / 8;  // of 16 bytes
#pragma unroll 1
        for (int i = threadIdx.x; i < count * kKeyPieces; i += kThreads) {
            const int record = i / kKeyPieces, piece = i % kKeyPieces, at = index(record);
            copy_piece(ring.keys + record * kKeyStride + 4 * (piece ^ (at % 8)), keys + at * kDim + 8 * piece,
                       policy);
        }
        constexpr int kUPieces = kRows / 8;
#pragma unroll 1
        for (int i = threadIdx.x; i < count * kUPieces; i += kThreads) {
            const int record = i / kUPieces, row = 8 * (i % kUPieces), at = index(record);
            copy_piece(ring.u + record * kRows + row,
                       u + at * kDim + ring_u_position(RecordFormat::kBf16, first_row + row, at), policy);
        }
        if (threadIdx.x < count) copy_word(ring.gate + threadIdx.x, gate + index(threadIdx.x), policy);
    }
};

// Overlaps of the records with the new key and query, and their part of every row, which is returned: of row
// threadIdx.x % kRows, for k in the first warp and for q in the second. Leaves the weights w_i in ring.gate.
// total is c_t, the sum of log gates up to the new token.
__device__ __forceinline__ float reduce_ring(const RingView& ring, int count, float total, const Columns& k,
                                             const Columns& q) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / kLanesPerRow;
    // Whole warps enter every turn of the loop: the shuffles need all lanes.
#pragma unroll 1
    for (int first = 0; first < count; first += kTurn) {
        const int record = first + 2 * warp + group % 2 + 4 * (group / 2);
        const bool live = record < count;
        Columns key;
        load_key(ring.keys + (live ? record : first) * kKeyStride, lane, key);
        const float with_k = row_sum(dot(key, k));
        const float with_q = row_sum(dot(key, q));
        if (live && lane % kLanesPerRow == 0) {
            const float weight = expf(total - ring.gate[record]);
            ring.overlap[record] = {weight * with_k, weight * with_q};
        }
    }
    __syncthreads();
    const int row = threadIdx.x % kRows;
    const bool for_q = threadIdx.x >= kRows;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
        const float2 overlap = ring.overlap[i];
        sum = fmaf(__bfloat162float(ring.u[i * kRows + row]), for_q ? overlap.y : overlap.x, sum);
    }
    if (threadIdx.x < count) ring.gate[threadIdx.x] = expf(total - ring.gate[threadIdx.x]);
    return sum;
}

// S += sum_i w_i u_i k_i^T
__device__ __forceinline__ void fold_ring(Tile& s, const RingView& ring, int count, int lane_row) {
    for (int i = 0; i < count; ++i) {
        Columns key;
        load_key(ring.keys + i * kKeyStride, threadIdx.x % 32, key);
        const float weight = ring.gate[i];
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const float w_u = weight * __bfloat162float(ring.u[i * kRows + lane_row + 4 * pass]);
#pragma unroll
            for (int c = 0; c < kColumns; ++c) s[pass][c] = fmaf(w_u, key[c], s[pass][c]);
        }
    }
}

// The new token's key is kept as it came in.
__device__ __forceinline__ void append_key(const RingSource& source, const Place& place, int fill,
                                           const __nv_bfloat16* key) {
    if (place.first_row != 0 || place.value_head % place.group != 0) return;
    const int at = source.index(fill);
    unsigned* to = reinterpret_cast<unsigned*>(source.keys + at * kDim);
    to[ring_key_position(2 * threadIdx.x, at) / 2] = reinterpret_cast<const unsigned*>(key)[threadIdx.x];
}
static_assert(kThreads == kDim / 2, "one thread per word of a key");

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    linear_buffered_small(const __grid_constant__ LinearParams p) {
    extern __shared__ __align__(16) char shared_memory[];
    const Place place(p);
    const int lane = place.lane;
    const int slot = p.slot[place.batch_row];
    __nv_bfloat16* const out = p.out + place.row_index(p, place.batch_row);
    if (slot < 0) return write_zeros(out);
    const int fill = p.fill[place.batch_row];
    const bool flush = p.flush[place.batch_row] != 0;

    // Everything that comes from memory is asked for before anything is used.
    const RingView ring(shared_memory, p.ring_capacity);
    __shared__ RingSource source;  // for later: its registers would not fit beside the state tile
    const RingSource here(p, place, slot);
    if (threadIdx.x == 0) source = here;
    if (fill > 0) here.start_copy(ring, fill);
    const StateRows<kFormat> state(p.state, nullptr, place.row_index(p, slot));
    StateRows<kFormat>::Pieces pieces;
    state.load(pieces, place, evict_first());
    const TokenVectors vectors(p, place, 0);
    Columns q, k;
    load_columns<kFormat>(vectors.q, lane, q);
    load_columns<kFormat>(vectors.k, lane, k);
    append_key(here, place, fill, vectors.k);
    const std::size_t head_index = place.head_index(p, 0);
    const float raw_a = __bfloat162float(p.a[head_index]);
    const float raw_b = __bfloat162float(p.b[head_index]);
    float total = log_gate(p.a_log[place.value_head], raw_a, p.dt_bias[place.value_head]);
    const float beta = sigmoid(raw_b);
    const float v = __bfloat162float(vectors.v[place.own_row]);
    normalise(q, rsqrtf(float(kDim)));
    const float k_scale = normalise(k, 1.0f);
    const float kq = row_sum(dot(k, q));

    float row_term = 0.0f;
    if (fill > 0) {
        finish_copies();
        total += ring.gate[fill - 1];
        row_term = reduce_ring(ring, fill, total, k, q);
    }
    ring.row_terms[threadIdx.x] = row_term;
    __syncthreads();
    const float decay = expf(total);

    Tile s;
    StateRows<kFormat>::widen(pieces, s);
    const float own =
        fmaf(decay, state_terms(s, k, q, lane), ring.row_terms[(lane % 2) * kRows + place.own_row]);
    const float u = delta(own, beta, v, lane);
    if (lane % 2) out[place.own_row] = __float2bfloat16(fmaf(u, kq, own));
    if (place.first_row == 0 && threadIdx.x == 0) source.gate[source.index(fill)] = total;
    if (lane % 2 == 0) *source.new_u(fill, place) = __float2bfloat16(u * k_scale);
    if (!flush) return;

    advance(s, decay, u, k, lane);
    fold_ring(s, ring, fill, place.lane_row);
    state.store<true>(s, place);
}

}  // namespace

cudaError_t launch_linear_buffered_small(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !has_valid_ring(params) || params.tokens != 1 ||
        params.ring_capacity > kMaxSmallRingCapacity || params.shape.state != StateFormat::kFp32 ||
        params.shape.records != RecordFormat::kBf16)
        return cudaErrorInvalidValue;
    const dim3 grid(params.shape.v_heads * kBlocksPerHead, params.batch);
    linear_buffered_small<<<grid, kThreads, RingView::bytes(params.ring_capacity), stream>>>(params);
    return cudaGetLastError();
}

}  // namespace kvsim
