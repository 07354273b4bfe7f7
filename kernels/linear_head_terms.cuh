// What a tile of the buffered kernel computes from the records and the new tokens alone, while its state is
// on the way (linear_buffered.cu).
#pragma once

#include "kernels/linear_pipeline.cuh"

namespace kvsim::pipelined {

constexpr float kQueryScale = 0.08838834764831845f;  // 128^-1/2

// Records of a chunk that are live, as masks of operand words that hold records 2t and 2t + 1, and 8 further.
struct LiveMask {
    unsigned low, high;
    __device__ LiveMask(int first, int fill, int t) {
        const int at = first + 2 * t;
        low = (at < fill ? 0xffffu : 0u) | (at + 1 < fill ? 0xffff0000u : 0u);
        high = (at + 8 < fill ? 0xffffu : 0u) | (at + 9 < fill ? 0xffff0000u : 0u);
    }
};

// Columns of the tensor cores' products: 2 n for the key and 2 n + 1 for the query of token n, eight to a
// column tile. A lane 4 g + t thus holds what belongs to tokens t, t + 4, ... (array index n) and to state
// rows g and g + 8 of 16 (m-tile a of kRowTiles, half h).
//
// Vectors of 128 are taken in eight steps of 16 columns; which eight of the group of 32 columns j lane t has,
// and how keys lie in the ring, ring_key_position() says. Keys and queries stay in registers if kHoldTokens;
// else they are read from shared memory wherever they are used.
template <StateFormat kFormat, RecordFormat kRecords, int kTokenTiles, bool kVerify, int kRowTiles = 2,
          bool kHoldTokens = true>
struct HeadTerms {
    static constexpr int kNT = kTokenTiles;
    static constexpr int kMT = (kNT + 1) / 2;
    const LinearParams& p;
    const HeadLayout& layout;
    int lane = threadIdx.x % 32;
    int g = lane / 4, t = lane % 4;

    const char* head;  // stage of the head
    HeadMeta m;
    int row0;                          // first row of the tile in its head
    unsigned kq[kNT][8][2];            // raw keys and queries as operand B, if they are held
    float gram[kMT][kNT][4];           // their products with each other
    float committed;                   // sum of log gates of the records
    float total[kNT], beta[kNT];       // sum of log gates up to the token
    float k_scale[kNT], q_scale[kNT];  // 1 / norm; that of q times k_dim^-1/2
    float value[kRowTiles][2][kNT];    // v
    float x[kRowTiles][kNT][4];        // S k and S q of the token: its products with what is known so far

    __device__ HeadTerms(const LinearParams& params, const HeadLayout& l) : p(params), layout(l) {}

    __device__ __forceinline__ const float* gates() const {
        return reinterpret_cast<const float*>(head + layout.gate);
    }
    __device__ __forceinline__ const float* scalars() const {
        return reinterpret_cast<const float*>(head + layout.scalars);
    }

    // Sums of log gates up to each of this lane's tokens, and their betas.
    __device__ __forceinline__ void gate_tokens() {
        committed = m.fill > 0 ? gates()[m.fill - 1] : 0.0f;
        const float rate = -expf(scalars()[0]), bias = scalars()[1];
        float before = committed;
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const int token = t + 4 * n;
            const uint2 raw = reinterpret_cast<const uint2*>(scalars() + 2)[token];
            const std::size_t at = (std::size_t(m.row) * p.tokens + token) * p.shape.v_heads + m.value_head;
            beta[n] = 1.0f / (1.0f + __expf(-half_of_word(raw.y, at)));
            float sum = log_gate_at_rate(rate, half_of_word(raw.x, at) + bias);
            if constexpr (kVerify) {
#pragma unroll
                for (int d = 1; d < 4; d *= 2) {
                    const float x = __shfl_up_sync(kAllLanes, sum, d, 4);
                    if (t >= d) sum += x;
                }
            }
            total[n] = before + sum;
            before = __shfl_sync(kAllLanes, total[n], 3, 4);
        }
    }

    // A lane's eight columns of group j of a vector.
    __device__ __forceinline__ uint4 columns_of(const char* vector, int j) const {
        if constexpr (kFormat != StateFormat::kFp32)
            return *reinterpret_cast<const uint4*>(vector + 64 * j + 16 * t);
        const uint2 first = *reinterpret_cast<const uint2*>(vector + 64 * j + 8 * t);
        const uint2 second = *reinterpret_cast<const uint2*>(vector + 64 * j + 32 + 8 * t);
        return {first.x, first.y, second.x, second.y};
    }

    // Operands B of steps 2 j and 2 j + 1, of all tokens.
    using TokenOperands = unsigned[kNT][2][2];
    __device__ __forceinline__ void read_tokens(int j, TokenOperands& b) const {
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const uint4 w = columns_of(head + layout.vectors + (8 * n + g) * kVectorStride, j);
            b[n][0][0] = w.x;
            b[n][0][1] = w.y;
            b[n][1][0] = w.z;
            b[n][1][1] = w.w;
        }
    }
    __device__ __forceinline__ void token_operands(int j, TokenOperands& b) const {
        if constexpr (kHoldTokens) {
#pragma unroll
            for (int n = 0; n < kNT; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) b[n][i / 2][i % 2] = kq[n][2 * j + i / 2][i % 2];
        } else {
            read_tokens(j, b);
        }
    }

    // Everything about the new tokens that does not need the records.
    __device__ __forceinline__ void load_tokens() {
        if constexpr (kHoldTokens) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                TokenOperands b;
                read_tokens(j, b);
#pragma unroll
                for (int n = 0; n < kNT; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) kq[n][2 * j + i / 2][i % 2] = b[n][i / 2][i % 2];
            }
        }
        gate_tokens();
#pragma unroll
        for (int a = 0; a < kMT; ++a) {
#pragma unroll
            for (int n = 0; n < kNT; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) gram[a][n][i] = 0.0f;
#pragma unroll
            for (int s = 0; s < 8; ++s) {
                constexpr unsigned kZero = 0;
                const bool two = 2 * a + 1 < kNT;
                const int second = two ? 2 * a + 1 : 0;
                TokenOperands b;
                token_operands(s / 2, b);
                const auto &b1 = b[2 * a][s % 2], &b2 = b[second][s % 2];
#pragma unroll
                for (int n = 0; n < kNT; ++n)
                    mma(gram[a][n], b1[0], two ? b2[0] : kZero, b1[1], two ? b2[1] : kZero, b[n][s % 2][0],
                        b[n][s % 2][1]);
            }
        }
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const float kk = __shfl_sync(kAllLanes, gram[n / 2][n][2 * (n % 2)], 9 * t);
            const float qq = __shfl_sync(kAllLanes, gram[n / 2][n][2 * (n % 2) + 1], 9 * t + 4);
            k_scale[n] = rsqrtf(kk + kNormEpsilon);
            q_scale[n] = rsqrtf(qq + kNormEpsilon) * kQueryScale;
        }
    }

    __device__ __forceinline__ int swizzle(int record) const {
        return wrapped(m.start + record, p.ring_capacity) % 8;
    }

    // u of 16 rows and 16 records as operand A.
    __device__ __forceinline__ void load_u(int m16, int first, LiveMask live, unsigned (&a)[4]) const {
        const int record = first + lane % 8 + 8 * (lane / 16), r = row0 + 16 * m16 + 8 * (lane / 8 % 2);
        ldmatrix_trans(a, head + layout.u + record * kVectorBytes + 16 * (r / 8 ^ swizzle(record)));
        a[0] &= live.low;
        a[1] &= live.low;
        a[2] &= live.high;
        a[3] &= live.high;
    }
    // The same in fp32: [row half][record 2t, 2t + 1, 2t + 8, 2t + 9].
    __device__ __forceinline__ void load_u_values(int m16, int first, int fill, float (&v)[2][4]) const {
        if constexpr (kRecords == RecordFormat::kFp32U) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int record = first + 2 * t + (i & 1) + 8 * (i / 2);
                const float* u = reinterpret_cast<const float*>(head + layout.u + record * 2 * kVectorBytes);
                const int r = row0 + 16 * m16 + g, x = swizzle(record);
                v[0][i] = record < fill ? u[4 * (r / 4 ^ x) + r % 4] : 0.0f;
                v[1][i] = record < fill ? u[4 * ((r + 8) / 4 ^ x) + r % 4] : 0.0f;
            }
        } else {
            unsigned a[4];
            load_u(m16, first, LiveMask(first, fill, t), a);
            v[0][0] = low_half(a[0]);
            v[0][1] = high_half(a[0]);
            v[1][0] = low_half(a[1]);
            v[1][1] = high_half(a[1]);
            v[0][2] = low_half(a[2]);
            v[0][3] = high_half(a[2]);
            v[1][2] = low_half(a[3]);
            v[1][3] = high_half(a[3]);
        }
    }

    // x = sum_i w_i u_i (k_i.k), sum_i w_i u_i (k_i.q).
    __device__ __forceinline__ void ring_terms() {
#pragma unroll
        for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
            for (int n = 0; n < kNT; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) x[a][n][i] = 0.0f;
#pragma unroll 1
        for (int first = 0; first < m.fill; first += kChunk) {
            float overlap[kNT][4] = {};
            const char* keys = head + (first + lane % 16) * kVectorBytes;
            const int mix = swizzle(first + lane % 16);
#pragma unroll
            for (int s = 0; s < 8; ++s) {
                unsigned a[4];
                ldmatrix(a, keys + 16 * ((2 * s + lane / 16) ^ mix));
                TokenOperands b;
                token_operands(s / 2, b);
#pragma unroll
                for (int n = 0; n < kNT; ++n)
                    mma(overlap[n], a[0], a[1], a[2], a[3], b[n][s % 2][0], b[n][s % 2][1]);
            }
            const bool live0 = first + g < m.fill, live1 = first + g + 8 < m.fill;
            const float gate0 = gates()[first + g], gate1 = gates()[first + g + 8];
            unsigned high[kNT][2], low[kNT][2];
#pragma unroll
            for (int n = 0; n < kNT; ++n) {
                const float w0 = __expf(total[n] - gate0), w1 = __expf(total[n] - gate1);
                split_pair(live0 ? overlap[n][0] * w0 * k_scale[n] : 0.0f,
                           live0 ? overlap[n][1] * w0 * q_scale[n] : 0.0f, high[n][0], low[n][0]);
                split_pair(live1 ? overlap[n][2] * w1 * k_scale[n] : 0.0f,
                           live1 ? overlap[n][3] * w1 * q_scale[n] : 0.0f, high[n][1], low[n][1]);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    high[n][i] = movmatrix(high[n][i]);
                    low[n][i] = movmatrix(low[n][i]);
                }
            }
#pragma unroll
            for (int a = 0; a < kRowTiles; ++a) {
                if constexpr (kRecords == RecordFormat::kBf16) {
                    unsigned u[4];
                    load_u(a, first, LiveMask(first, m.fill, t), u);
#pragma unroll
                    for (int n = 0; n < kNT; ++n) {
                        mma(x[a][n], u[0], u[1], u[2], u[3], high[n][0], high[n][1]);
                        mma(x[a][n], u[0], u[1], u[2], u[3], low[n][0], low[n][1]);
                    }
                } else {
                    float v[2][4];
                    load_u_values(a, first, m.fill, v);
                    unsigned uh[4], ul[4];
                    split_pair(v[0][0], v[0][1], uh[0], ul[0]);
                    split_pair(v[1][0], v[1][1], uh[1], ul[1]);
                    split_pair(v[0][2], v[0][3], uh[2], ul[2]);
                    split_pair(v[1][2], v[1][3], uh[3], ul[3]);
#pragma unroll
                    for (int n = 0; n < kNT; ++n) {
                        mma(x[a][n], uh[0], uh[1], uh[2], uh[3], high[n][0], high[n][1]);
                        mma(x[a][n], uh[0], uh[1], uh[2], uh[3], low[n][0], low[n][1]);
                        mma(x[a][n], ul[0], ul[1], ul[2], ul[3], high[n][0], high[n][1]);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void load_values() {
#pragma unroll
        for (int n = 0; n < kNT; ++n)
#pragma unroll
            for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const __nv_bfloat16* v = reinterpret_cast<const __nv_bfloat16*>(
                        head + layout.v + min(t + 4 * n, p.tokens - 1) * kVectorBytes);
                    value[a][h][n] = __bfloat162float(v[row0 + 16 * a + 8 * h + g]);
                }
    }

    // The parts of the new records that do not wait for the state: once per head, keys once per key head.
    __device__ __forceinline__ void write_keys_and_gates() const {
        const std::size_t value_ring =
            (std::size_t(m.slot) * p.shape.v_heads + m.value_head) * p.ring_capacity;
        const int group = p.shape.v_heads / p.shape.k_heads;
        const float base = kVerify && m.flush ? committed : 0.0f;
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const int token = t + 4 * n;
            if (g == 0 && token < p.tokens)
                p.ring_gate[value_ring + wrapped(m.start + m.fill + token, p.ring_capacity)] =
                    total[n] - base;
        }
        if (m.value_head % group != 0) return;
        const std::size_t key_ring =
            (std::size_t(m.slot) * p.shape.k_heads + m.value_head / group) * p.ring_capacity;
        for (int token = 0; token < p.tokens; ++token) {
            const int at = wrapped(m.start + m.fill + token, p.ring_capacity);
            const uint2 w =
                *reinterpret_cast<const uint2*>(head + layout.vectors + 2 * token * kVectorStride + 8 * lane);
            unsigned* target = reinterpret_cast<unsigned*>(p.ring_k + (key_ring + at) * kDim);
            target[ring_key_position(kFormat, 4 * lane, at) / 2] = w.x;
            target[ring_key_position(kFormat, 4 * lane + 2, at) / 2] = w.y;
        }
    }
};

}  // namespace kvsim::pipelined
