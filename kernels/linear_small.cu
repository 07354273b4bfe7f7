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
// A warp reads whole lines of 128 bytes, eight lanes to a line. The tensor cores want the rows of an operand
// in four lanes each, so they are given half lines as if these were rows; columns of the products are the key
// and the query over the first halves of lines, the same over the second halves, and all again. Of every
// product one half or the other is of use, and two lanes together have the sums of a row.

#include "kernels/launch_checks.hpp"
#include "kernels/linear_small.cuh"

namespace kvsim {
namespace {

using namespace small_decode;

template <StateFormat kFormat, int kChunks>
struct SmallDecode : SmallTerms<kFormat, kChunks> {
    using Terms = SmallTerms<kFormat, kChunks>;
    using S = typename Terms::S;
    using Terms::block_row, Terms::value_head, Terms::row, Terms::p, Terms::ring, Terms::lane, Terms::g,
        Terms::t;
    using Terms::lane_rows, Terms::load_u, Terms::swizzled, Terms::weight;
    using Terms::raw_a, Terms::raw_b, Terms::a_log, Terms::bias, Terms::total, Terms::beta;
    using Terms::slot, Terms::fill, Terms::start, Terms::flush, Terms::state, Terms::half_lines, Terms::u;

    __device__ SmallDecode(const LinearParams& params, char* memory) : Terms(params, memory) {}

    // S = exp(c) S + sum_i w_i u_i k_i^T + u k^T, and back to memory.
    __device__ __forceinline__ void fold() {
        char *const rows = lane_rows(p.state), *const low_rows = lane_rows(p.state_low);
        const float decay = __expf(total);
#pragma unroll
        for (int m = 0; m < S::kTiles; ++m) {
            typename S::LowRow low[2];
            if constexpr (kFormat == StateFormat::kSplit) {
#pragma unroll
                for (int h = 0; h < 2; ++h)
#pragma unroll
                    for (int j = 0; j < S::kLines; ++j) low[h][j] = S::load(low_rows + S::offset(m, h, j));
            }
            float row_u[2];
#pragma unroll
            for (int h = 0; h < 2; ++h)
                row_u[h] = __shfl_sync(kAllLanes, u[m / 2][m % 2], 4 * S::row(lane, h));
            unsigned high[kChunks][4], rest[kChunks][4];
#pragma unroll
            for (int c = 0; c < kChunks; ++c)
                if (c * kChunk < fill) fold_operands(m, c * kChunk, high[c], rest[c]);
#pragma unroll
            for (int j = 0; j < S::kLines; ++j) {
                float c[S::kPairs][4];
#pragma unroll
                for (int i = 0; i < S::kPairs; ++i) {
                    // Lanes 0 to 3 have the key over first halves of lines, lanes 8 to 11 over second ones.
                    const unsigned k = __shfl_sync(kAllLanes, half_lines[j][i], 8 * (g % 2) + t);
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        const float2 s = S::read_pair(state[m][h][j], low[h][j], i);
                        c[i][2 * h] = fmaf(row_u[h], low_half(k), decay * s.x);
                        c[i][2 * h + 1] = fmaf(row_u[h], high_half(k), decay * s.y);
                    }
                }
#pragma unroll
                for (int chunk = 0; chunk < kChunks; ++chunk) {
                    if (chunk * kChunk >= fill) break;
                    fold_line(j, chunk * kChunk, high[chunk], rest[chunk], c);
                }
#pragma unroll
                for (int i = 0; i < S::kPairs; ++i)
#pragma unroll
                    for (int h = 0; h < 2; ++h)
                        S::write_pair(state[m][h][j], low[h][j], i, c[i][2 * h], c[i][2 * h + 1]);
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    S::store(rows + S::offset(m, h, j), state[m][h][j]);
                    if constexpr (kFormat == StateFormat::kSplit)
                        S::store(low_rows + S::offset(m, h, j), low[h][j]);
                }
            }
        }
    }
    // Adds a chunk of records to a line. First and second halves of lines take turns as rows, and each has
    // its own columns: what is not of use is kept out by zeros.
    __device__ __forceinline__ void fold_line(int j, int first, const unsigned (&high)[4],
                                              const unsigned (&rest)[4], float (&c)[S::kPairs][4]) const {
        const int record = first + lane % 16;
        const char* keys = ring.keys + record * kKeyStride;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned a[4], a_rest[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                a[i] = g % 2 == half ? high[i] : 0;
                a_rest[i] = g % 2 == half ? rest[i] : 0;
            }
#pragma unroll
            for (int i = 0; i < S::kPairs; i += 2) {
                unsigned b[4];
                ldmatrix_trans(b, keys + 16 * swizzled((2 * j + half) * S::kPairs + i + lane / 16, record));
                mma(c[i], a[0], a[1], a[2], a[3], b[0], b[1]);
                mma(c[i + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
                mma(c[i], a_rest[0], a_rest[1], a_rest[2], a_rest[3], b[0], b[1]);
                mma(c[i + 1], a_rest[0], a_rest[1], a_rest[2], a_rest[3], b[2], b[3]);
            }
        }
    }
    // w_i u_i of a chunk of records as two bf16 operands, for the rows of a tile.
    __device__ __forceinline__ void fold_operands(int m, int first, unsigned (&high)[4],
                                                  unsigned (&rest)[4]) const {
        unsigned a[4];
        load_u(m / 2, first, a);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int record = first + 2 * t + 8 * i;
            const float w0 = weight(record), w1 = weight(record + 1);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const unsigned pair = __shfl_sync(kAllLanes, a[2 * i + m % 2], 4 * S::row(lane, h) + t);
                split_pair(record < fill ? w0 * low_half(pair) : 0.0f,
                           record + 1 < fill ? w1 * high_half(pair) : 0.0f, high[2 * i + h], rest[2 * i + h]);
            }
        }
    }

    // keep: a state that is written back had better stay in the L2 until then.
    __device__ __forceinline__ void run(bool keep) {
        // Everything that comes from memory is asked for before anything is used, and what does not need the
        // row's tables while these are on their way. The barriers keep compilers from moving loads.
        __syncthreads();
        this->load_token();
        this->load_head();
        __syncwarp();
        // None of the four is negative but the slot. Asked together, they are read together: a branch on the
        // slot alone would let the others wait for it.
        if ((slot | fill | start | flush) < 0) {
            __nv_bfloat16* out = p.out + std::size_t(row * p.shape.v_heads + value_head) * kDim + block_row;
            for (int i = threadIdx.x; i < S::kRows; i += kThreads) out[i] = __float2bfloat16(0.0f);
            return;
        }
        if (fill > 0) this->copy_ring();
        this->load_state(flush && keep);
        this->token_products();
        total = log_gate_at_rate(-expf(a_log), __bfloat162float(raw_a) + bias);
        beta = __fdividef(1.0f, 1.0f + __expf(-__bfloat162float(raw_b)));
        if (fill > 0) {
            finish_copies();
            total += ring.gate[fill - 1];
            this->ring_overlaps();
        }
        this->pick_half_lines();
        this->ring_terms();
        this->state_terms();
        this->write_rows();
        this->write_key_and_gate();
        if (flush) fold();
    }
};

template <StateFormat kFormat, int kChunks>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    linear_buffered_small(const __grid_constant__ LinearParams p, bool keep) {
    extern __shared__ __align__(16) char memory[];
    SmallDecode<kFormat, kChunks>(p, memory).run(keep);
}

template <StateFormat kFormat>
cudaError_t launch(const LinearParams& p, cudaStream_t stream) {
    using S = Shape<kFormat>;
    const dim3 grid(p.shape.v_heads / p.shape.k_heads * S::kBlocksPerHead, p.shape.k_heads, p.batch);
    const std::size_t bytes = RingView<S::kUStride>::bytes(p.ring_capacity);
    constexpr int kMostChunks = kMaxSmallRingCapacity / kChunk;
    const auto kernel = p.ring_capacity <= kChunk ? linear_buffered_small<kFormat, 1>
                                                  : linear_buffered_small<kFormat, kMostChunks>;
    kernel<<<grid, kThreads, bytes, stream>>>(p, state_bytes(p.shape, p.batch) >= kKeepFromBytes);
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
