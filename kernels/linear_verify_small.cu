// Buffered verification of a gated-delta-rule layer by short blocks, which are many: no pipeline to fill and
// drain. The formulas, and what a warp does with its rows, are those of linear_buffered.cu.
//
// A warp holds its rows of the state in registers, as operands of the tensor cores; what belongs to the head,
// records and new tokens, lies in the block's shared memory as in a stage of the pipeline. All of it is asked
// for at once, the records first, and what depends on the head alone is computed while the state is on its
// way: by one warp for each tile of tokens, and handed to the others through shared memory, for instructions
// are what binds.
//
// Keys and queries of the tokens are read from shared memory at each use: next to the state there are no
// registers to hold them.

#include "kernels/launch_checks.hpp"
#include "kernels/linear_small.hpp"
#include "kernels/linear_verify_small.cuh"

namespace kvsim {
namespace {

using namespace small_verify;

template <StateFormat kFormat, int kTokenTiles>
struct SmallVerify : TileStep<kFormat, RecordFormat::kBf16, kTokenTiles, true, Rows<kFormat>::kTiles> {
    using R = Rows<kFormat>;
    using Step = TileStep<kFormat, RecordFormat::kBf16, kTokenTiles, true, R::kTiles>;
    using Step::fold_weights, Step::fold_rows, Step::fold_keys, Step::columns_of, Step::of_token;
    using Step::kNT, Step::p, Step::layout, Step::lane, Step::g, Step::t, Step::head, Step::m, Step::row0;
    using Step::x, Step::u_scale;
    using Terms = TokenTerms<kTokenTiles>;

    const int warp = threadIdx.x / 32;
    Terms& terms;
    uint4* const operands;
    typename R::State state;

    // Grid: x = blocks of the value heads of a key head, y = key heads, z = rows of the batch.
    __device__ SmallVerify(const LinearParams& params, const HeadLayout& l, char* memory)
        : Step(params, l),
          terms(*reinterpret_cast<Terms*>(memory)),
          operands(reinterpret_cast<uint4*>(memory + sizeof(Terms) + l.bytes) + lane) {
        const int row = blockIdx.z;
        const int slot = load_now(p.slot + row), fill = load_now(p.fill + row);
        const int start = load_now(p.start + row), flush = load_now(p.flush + row);
        const int value_head = int(blockIdx.y * gridDim.x + blockIdx.x) / R::kBlocksPerHead;
        m = {slot, fill, start, flush, row, value_head, 0, 0};
        head = memory + sizeof(Terms);
        row0 = R::block_row() + warp * 16 * R::kTiles;
    }

    // First byte of a lane's pieces of row g or g + 8 of a tile.
    __device__ __forceinline__ char* state_row(void* plane, int a, int h) const {
        const std::size_t head_row = std::size_t(m.slot * p.shape.v_heads + m.value_head) * kDim;
        return static_cast<char*>(plane) + (head_row + row0 + 16 * a + 8 * h + g) * R::kRowBytes + 16 * t;
    }
    template <class Row>
    __device__ __forceinline__ void load_tile(void* plane, int a, Row (&out)[2], std::uint64_t policy) const {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const char* row = state_row(plane, a, h);
#pragma unroll
            for (int i = 0; i < R::kPieces; ++i) out[h][i] = R::load(row + 64 * i, policy);
        }
    }

    // A warp's part of what depends on the head alone: that of the token tile of its number. A tile needs its
    // products with itself and with all tiles before it. The tensor cores multiply two tiles by one: with
    // three tiles, a further warp multiplies the second by the third.
    static constexpr int kSharers = kNT < 3 ? kNT : kWarps;
    static_assert(kNT <= 3 && kSharers <= kWarps);
    __device__ __forceinline__ void share_terms() const {
        const int n = min(warp, kNT - 1), before = warp / kNT, token = t + 4 * n;
        const bool further = warp >= kNT;
        unsigned tokens[1][8][2], earlier[8][2] = {};
        this->read_tokens(n, tokens[0]);
        if constexpr (kNT > 1) this->read_tokens(before, earlier);
        float gram[4] = {};
#pragma unroll
        for (int s = 0; s < 8; ++s)
            mma(gram, tokens[0][s][0], earlier[s][0], tokens[0][s][1], earlier[s][1], tokens[0][s][0],
                tokens[0][s][1]);
        const auto gates = this->gate_tokens();
        const float total = of_token(gates.total, n), beta = of_token(gates.beta, n);
        const float kk = __shfl_sync(kAllLanes, gram[0], 9 * t),
                    qq = __shfl_sync(kAllLanes, gram[1], 9 * t + 4);
        const float k_scale = rsqrtf(kk + kNormEpsilon), q_scale = rsqrtf(qq + kNormEpsilon) * kQueryScale;
#pragma unroll
        for (int i = 0; i < (kNT > 1 ? 2 : 1); ++i) {
            // Rows of keys, every second one.
            const int s = g / 2 + 4 * (i == 0 ? n : before);
            const float decay = __expf(total - __shfl_sync(kAllLanes, gates.total, s));
            if (g % 2 == 0 && (i == 0 ? !further : before < n))
                terms.products[s][token] = {token > s ? decay * gram[2 * i] * k_scale : 0.0f,
                                            token >= s ? decay * gram[2 * i + 1] * q_scale : 0.0f};
        }
        if (further) return;
        if (g == 0) {
            const float decay = __expf(total);
            terms.state_scale[token] = {decay * k_scale, decay * q_scale};
            terms.u_scale[token] = k_scale * beta;
        }
        if (R::block_row() == 0) this->write_gate(token, total);
#pragma unroll 1
        for (int first = 0; first < m.fill; first += kChunk) {
            float overlap[1][4];
            this->multiply_keys(first, tokens, overlap);
            unsigned high[2], low[2];
            this->weigh(overlap[0], first, total, k_scale, q_scale, high, low);
            operands[(first / kChunk * kNT + n) * 32] = {high[0], high[1], low[0], low[1]};
        }
    }

    // x = sum_i w_i u_i (k_i.k), sum_i w_i u_i (k_i.q).
    __device__ __forceinline__ void ring_terms() {
        this->clear_products();
#pragma unroll 1
        for (int first = 0; first < m.fill; first += kChunk) {
            unsigned high[kNT][2], low[kNT][2];
#pragma unroll
            for (int n = 0; n < kNT; ++n) {
                const uint4 w = operands[(first / kChunk * kNT + n) * 32];
                high[n][0] = w.x;
                high[n][1] = w.y;
                low[n][0] = w.z;
                low[n][1] = w.w;
            }
            this->add_records(first, high, low);
        }
    }

    // x += exp(c) S k, exp(c) S q.
    __device__ __forceinline__ void state_terms() {
        // Four sums at least, so that fewer products wait for each other.
        constexpr int kSums = R::kTiles * kNT < 4 ? 4 / (R::kTiles * kNT) : 1;
        float sums[R::kTiles][kNT][kSums][4] = {};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            uint4 b[kNT];
#pragma unroll
            for (int n = 0; n < kNT; ++n)
                b[n] = columns_of(head + layout.vectors + (8 * n + g) * kVectorStride, j);
#pragma unroll
            for (int s = 0; s < 2; ++s)
#pragma unroll
                for (int a = 0; a < R::kTiles; ++a)
#pragma unroll
                    for (int n = 0; n < kNT; ++n)
                        multiply(sums[a][n], a, j, s, s ? b[n].z : b[n].x, s ? b[n].w : b[n].y);
        }
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const float2 scale = terms.state_scale[t + 4 * n];
#pragma unroll
            for (int a = 0; a < R::kTiles; ++a)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float sum = sums[a][n][0][i];
#pragma unroll
                    for (int k = 1; k < kSums; ++k) sum += sums[a][n][k][i];
                    x[a][n][i] = fmaf(i % 2 ? scale.y : scale.x, sum, x[a][n][i]);
                }
        }
    }
    // Step 2 j + s of a tile's products with four tokens.
    template <int kSums>
    __device__ __forceinline__ void multiply(float (&sums)[kSums][4], int a, int j, int s, unsigned b0,
                                             unsigned b1) const {
        if constexpr (R::kWide) {
            // 11 bits of the state's words: finer than the records'.
            const uint4 &r0 = state[a][0][2 * j + s], &r1 = state[a][1][2 * j + s];
            mma_tf32(sums[2 * s % kSums], __uint_as_float(r0.x), __uint_as_float(r1.x), __uint_as_float(r0.y),
                     __uint_as_float(r1.y), b0 << 16, b0 & 0xffff0000u);
            mma_tf32(sums[(2 * s + 1) % kSums], __uint_as_float(r0.z), __uint_as_float(r1.z),
                     __uint_as_float(r0.w), __uint_as_float(r1.w), b1 << 16, b1 & 0xffff0000u);
        } else {
            const uint4 &r0 = state[a][0][j], &r1 = state[a][1][j];
            mma(sums[s % kSums], s ? r0.z : r0.x, s ? r1.z : r1.x, s ? r0.w : r0.y, s ? r1.w : r1.y, b0, b1);
        }
    }

    // Forward substitution over the new tokens.
    __device__ __forceinline__ void substitute() {
#pragma unroll
        for (int n = 0; n < kNT; ++n) u_scale[n] = terms.u_scale[t + 4 * n];
#pragma unroll
        for (int s = 0; s < Step::kTokens; ++s) {
            if (s >= p.tokens) break;
            float u[R::kTiles][2];
            this->share_u(s, u);
#pragma unroll
            for (int n = s / 4; n < kNT; ++n) this->add_u(n, terms.products[s][t + 4 * n], u);
        }
    }

    // A lane's columns of group j of a row in fp32, and back to memory. low: of the split format.
    __device__ __forceinline__ void read_row(const typename R::Row& row, const typename R::LowRow& low, int j,
                                             float (&v)[8]) const {
        if constexpr (R::kWide) {
            const uint4 &first = row[2 * j], &second = row[2 * j + 1];
            const unsigned w[8] = {first.x,  first.y,  first.z,  first.w,
                                   second.x, second.y, second.z, second.w};
#pragma unroll
            for (int i = 0; i < 8; ++i) v[i] = __uint_as_float(w[i]);
        } else {
            Step::decode_words(row[j], low[j], v);
        }
    }
    __device__ __forceinline__ void write_row(int a, int h, int j, const float (&v)[8]) const {
        if constexpr (R::kWide) {
            float4* to = reinterpret_cast<float4*>(state_row(p.state, a, h) + 128 * j);
            __stcs(to, {v[0], v[1], v[2], v[3]});
            __stcs(to + 4, {v[4], v[5], v[6], v[7]});
        } else {
            uint4 high, low;
            Step::encode_words(v, high, low);
            __stcs(reinterpret_cast<uint4*>(state_row(p.state, a, h) + 64 * j), high);
            if constexpr (kFormat == StateFormat::kSplit)
                __stcs(reinterpret_cast<uint4*>(state_row(p.state_low, a, h) + 64 * j), low);
        }
    }

    // S = exp(c) S + sum_i w_i u_i k_i^T of the records that the row came with, back to memory.
    __device__ __forceinline__ void fold() {
        const float committed = this->committed(), decay = __expf(committed);
        const bool single = m.fill <= kChunk;
#pragma unroll
        for (int a = 0; a < R::kTiles; ++a) {
            typename R::LowRow low[2];
            if constexpr (kFormat == StateFormat::kSplit) {
                // The high plane comes again, from the L2: it need not stay in registers until here.
                load_tile(p.state, a, state[a], evict_first());
                load_tile(p.state_low, a, low, evict_first());
            }
            float weight[4];
            unsigned high[4], rest[4];
            fold_weights(0, committed, weight);
            fold_rows(a, 0, weight, high, rest);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float c[4][4];
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float v[8];
                    read_row(state[a][h], low[h], j, v);
#pragma unroll
                    for (int i = 0; i < 8; ++i) c[i / 2][2 * h + i % 2] = decay * v[i];
                }
#pragma unroll 1
                for (int first = 0; first < m.fill; first += kChunk) {
                    if (!single) {
                        fold_weights(first, committed, weight);
                        fold_rows(a, first, weight, high, rest);
                    }
                    unsigned b[2][4];
                    fold_keys(first, j, b);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const unsigned b0 = b[i / 2][2 * (i % 2)], b1 = b[i / 2][2 * (i % 2) + 1];
                        mma(c[i], high[0], high[1], high[2], high[3], b0, b1);
                        mma(c[i], rest[0], rest[1], rest[2], rest[3], b0, b1);
                    }
                }
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float v[8];
#pragma unroll
                    for (int i = 0; i < 8; ++i) v[i] = c[i / 2][2 * h + i % 2];
                    write_row(a, h, j, v);
                }
            }
        }
    }

    __device__ __forceinline__ void run(char* memory) {
        // One branch on all four, so that none of them is waited for on its own.
        if ((m.slot | m.fill | m.start | m.flush) < 0) {
            this->write_zeros();
            return;
        }
        const HeadCopies<kFormat> copies{p, layout, m, memory + sizeof(Terms), R::block_row()};
        copies.copy_ring();
        const std::uint64_t policy = kFormat == StateFormat::kSplit && m.flush ? evict_last() : evict_first();
#pragma unroll
        for (int a = 0; a < R::kTiles; ++a) load_tile(p.state, a, state[a], policy);
        copies.copy_tokens();
        finish_copies();
        if (warp < kSharers) share_terms();
        __syncthreads();
        ring_terms();
        if (blockIdx.x == 0) this->write_keys(blockIdx.y, warp, kWarps);
        state_terms();
        this->load_values();
        substitute();
        this->write_rows();
        if (m.flush) fold();
    }
};

template <StateFormat kFormat, int kTokenTiles>
__global__ void __launch_bounds__(kBlockThreads, kWarpsPerSm / kWarps)
    linear_verify_small(const __grid_constant__ LinearParams p) {
    extern __shared__ __align__(128) char memory[];
    const HeadLayout layout(p.ring_capacity, kTokenTiles, RecordFormat::kBf16);
    SmallVerify<kFormat, kTokenTiles>(p, layout, memory).run(memory);
}

template <StateFormat kFormat, int kTokenTiles>
cudaError_t launch(const LinearParams& p, cudaStream_t stream) {
    const auto kernel = linear_verify_small<kFormat, kTokenTiles>;
    const int bytes = block_bytes<kTokenTiles>(HeadLayout(p.ring_capacity, kTokenTiles, RecordFormat::kBf16));
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
        return error;
    const int group = p.shape.v_heads / p.shape.k_heads;
    kernel<<<dim3(group * Rows<kFormat>::kBlocksPerHead, p.shape.k_heads, p.batch), kBlockThreads, bytes,
             stream>>>(p);
    return cudaGetLastError();
}

template <StateFormat kFormat>
cudaError_t launch_tokens(const LinearParams& p, cudaStream_t stream) {
    switch (token_tiles(p.tokens)) {
        case 1:
            return launch<kFormat, 1>(p, stream);
        case 2:
            return launch<kFormat, 2>(p, stream);
        default:
            return launch<kFormat, 3>(p, stream);
    }
}

}  // namespace

cudaError_t launch_linear_verify_buffered_small(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !has_valid_ring(params) || params.shape.records != RecordFormat::kBf16)
        return cudaErrorInvalidValue;
    switch (params.shape.state) {
        case StateFormat::kFp32:
            return launch_tokens<StateFormat::kFp32>(params, stream);
        case StateFormat::kBf16:
            return launch_tokens<StateFormat::kBf16>(params, stream);
        case StateFormat::kSplit:
            return launch_tokens<StateFormat::kSplit>(params, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace kvsim
