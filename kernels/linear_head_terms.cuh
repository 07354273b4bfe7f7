// What a tile of the buffered kernel computes from the records and the new tokens alone, while its state is
// on the way (linear_buffered.cu).
#pragma once

#include "kernels/linear_pipeline.cuh"

namespace kvsim::pipelined {

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
// and how keys lie in the ring, ring_key_position() says.
template <StateFormat kFormat, RecordFormat kRecords, int kTokenTiles, bool kVerify, int kRowTiles = 2>
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
    unsigned kq[kNT][8][2];            // raw keys and queries as operand B
    float gram[kMT][kNT][4];           // their products with each other
    float total[kNT];                  // sum of log gates up to the token
    float k_scale[kNT], q_scale[kNT];  // 1 / norm; that of q times k_dim^-1/2
    float u_scale[kNT];                // beta / norm of the key
    float value[kRowTiles][2][kNT];    // v
    float x[kRowTiles][kNT][4];        // S k and S q of the token: its products with what is known so far

    __device__ HeadTerms(const LinearParams& params, const HeadLayout& l) : p(params), layout(l) {}

    __device__ __forceinline__ const float* gates() const {
        return reinterpret_cast<const float*>(head + layout.gate);
    }
    __device__ __forceinline__ const float* scalars() const {
        return reinterpret_cast<const float*>(head + layout.scalars);
    }

    // Sum of log gates of the records.
    __device__ __forceinline__ float committed() const { return m.fill > 0 ? gates()[m.fill - 1] : 0.0f; }

    // Sum of log gates up to a token, and its beta.
    struct TokenGates {
        float total, beta;
    };
    // Lane i computes those of token i, so that all tokens take one pass.
    __device__ __forceinline__ TokenGates gate_tokens() const {
        const int token = t + 4 * min(g, kNT - 1);
        const uint2 raw = reinterpret_cast<const uint2*>(scalars() + 2)[token];
        const std::size_t at = (std::size_t(m.row) * p.tokens + token) * p.shape.v_heads + m.value_head;
        const float beta = 1.0f / (1.0f + __expf(-half_of_word(raw.y, at)));
        float sum = log_gate_at_rate(-expf(scalars()[0]), half_of_word(raw.x, at) + scalars()[1]);
        if constexpr (kVerify) {
#pragma unroll
            for (int d = 1; d < 4; d *= 2) {
                const float x = __shfl_up_sync(kAllLanes, sum, d, 4);
                if (t >= d) sum += x;
            }
        }
        float total = committed() + sum;
#pragma unroll
        for (int n = 1; n < kNT; ++n) {
            const float before = __shfl_sync(kAllLanes, total, 4 * n - 1);
            if (g >= n) total = before + sum;
        }
        return {total, beta};
    }
    // What gate_tokens() left in the lane of token t + 4 n; of a single tile, every lane has its own.
    __device__ __forceinline__ float of_token(float x, int n) const {
        return kNT == 1 ? x : __shfl_sync(kAllLanes, x, t + 4 * n);
    }

    // A lane's eight columns of group j of a vector.
    __device__ __forceinline__ uint4 columns_of(const char* vector, int j) const {
        if constexpr (kFormat != StateFormat::kFp32)
            return *reinterpret_cast<const uint4*>(vector + 64 * j + 16 * t);
        const uint2 first = *reinterpret_cast<const uint2*>(vector + 64 * j + 8 * t);
        const uint2 second = *reinterpret_cast<const uint2*>(vector + 64 * j + 32 + 8 * t);
        return {first.x, first.y, second.x, second.y};
    }

    // Keys and queries of a tile as operands B of eight steps.
    __device__ __forceinline__ void read_tokens(int n, unsigned (&b)[8][2]) const {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint4 w = columns_of(head + layout.vectors + (8 * n + g) * kVectorStride, j);
            b[2 * j][0] = w.x;
            b[2 * j][1] = w.y;
            b[2 * j + 1][0] = w.z;
            b[2 * j + 1][1] = w.w;
        }
    }

    // Everything about the new tokens that does not need the records.
    __device__ __forceinline__ void load_tokens() {
#pragma unroll
        for (int n = 0; n < kNT; ++n) read_tokens(n, kq[n]);
        const TokenGates gates = gate_tokens();
#pragma unroll
        for (int n = 0; n < kNT; ++n) total[n] = of_token(gates.total, n);
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
                const auto &b1 = kq[2 * a][s], &b2 = kq[second][s];
#pragma unroll
                for (int n = 0; n < kNT; ++n)
                    mma(gram[a][n], b1[0], two ? b2[0] : kZero, b1[1], two ? b2[1] : kZero, kq[n][s][0],
                        kq[n][s][1]);
            }
        }
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const float kk = __shfl_sync(kAllLanes, gram[n / 2][n][2 * (n % 2)], 9 * t);
            const float qq = __shfl_sync(kAllLanes, gram[n / 2][n][2 * (n % 2) + 1], 9 * t + 4);
            k_scale[n] = rsqrtf(kk + kNormEpsilon);
            q_scale[n] = rsqrtf(qq + kNormEpsilon) * kQueryScale;
            u_scale[n] = k_scale[n] * of_token(gates.beta, n);
        }
    }

    __device__ __forceinline__ int swizzle(int record) const {
        return unsigned(wrapped(m.start + record, p.ring_capacity)) % 8;
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

    // Products of a chunk of records with tiles of tokens.
    template <int kTiles>
    __device__ __forceinline__ void multiply_keys(int first, const unsigned (&tokens)[kTiles][8][2],
                                                  float (&overlap)[kTiles][4]) const {
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) overlap[n][i] = 0.0f;
        const char* keys = head + (first + lane % 16) * kVectorBytes;
        const int mix = swizzle(first + lane % 16);
#pragma unroll
        for (int s = 0; s < 8; ++s) {
            unsigned a[4];
            ldmatrix(a, keys + 16 * ((2 * s + lane / 16) ^ mix));
#pragma unroll
            for (int n = 0; n < kTiles; ++n)
                mma(overlap[n], a[0], a[1], a[2], a[3], tokens[n][s][0], tokens[n][s][1]);
        }
    }
    // Those with a tile, weighted, as two operands B.
    __device__ __forceinline__ void weigh(const float (&overlap)[4], int first, float total, float k_scale,
                                          float q_scale, unsigned (&high)[2], unsigned (&low)[2]) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int record = first + g + 8 * i;
            const bool live = record < m.fill;
            const float w = __expf(total - gates()[record]);
            split_pair(live ? overlap[2 * i] * w * k_scale : 0.0f,
                       live ? overlap[2 * i + 1] * w * q_scale : 0.0f, high[i], low[i]);
            high[i] = movmatrix(high[i]);
            low[i] = movmatrix(low[i]);
        }
    }

    // x += sum_i w_i u_i (k_i.k), sum_i w_i u_i (k_i.q) of a chunk of records.
    __device__ __forceinline__ void add_records(int first, const unsigned (&high)[kNT][2],
                                                const unsigned (&low)[kNT][2]) {
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

    __device__ __forceinline__ void clear_products() {
#pragma unroll
        for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
            for (int n = 0; n < kNT; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) x[a][n][i] = 0.0f;
    }

    // x of all records.
    __device__ __forceinline__ void ring_terms() {
        clear_products();
#pragma unroll 1
        for (int first = 0; first < m.fill; first += kChunk) {
            float overlap[kNT][4];
            multiply_keys(first, kq, overlap);
            unsigned high[kNT][2], low[kNT][2];
#pragma unroll
            for (int n = 0; n < kNT; ++n)
                weigh(overlap[n], first, total[n], k_scale[n], q_scale[n], high[n], low[n]);
            add_records(first, high, low);
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
    __device__ __forceinline__ void write_gate(int token, float total) const {
        if (g != 0 || token >= p.tokens) return;
        const std::size_t ring = std::size_t(m.slot * p.shape.v_heads + m.value_head) * p.ring_capacity;
        p.ring_gate[ring + wrapped(m.start + m.fill + token, p.ring_capacity)] =
            total - (kVerify && m.flush ? committed() : 0.0f);
    }
    // Of every step-th token.
    __device__ __forceinline__ void write_keys(int key_head, int first, int step) const {
        const std::size_t key_ring = std::size_t(m.slot * p.shape.k_heads + key_head) * p.ring_capacity;
        for (int token = first; token < p.tokens; token += step) {
            const int at = wrapped(m.start + m.fill + token, p.ring_capacity);
            const uint2 w =
                *reinterpret_cast<const uint2*>(head + layout.vectors + 2 * token * kVectorStride + 8 * lane);
            unsigned* target = reinterpret_cast<unsigned*>(p.ring_k + (key_ring + at) * kDim);
            target[ring_key_position(kFormat, 4 * lane, at) / 2] = w.x;
            target[ring_key_position(kFormat, 4 * lane + 2, at) / 2] = w.y;
        }
    }
    __device__ __forceinline__ void write_keys_and_gates() const {
#pragma unroll
        for (int n = 0; n < kNT; ++n) write_gate(t + 4 * n, total[n]);
        const int group = p.shape.v_heads / p.shape.k_heads;
        if (m.value_head % group == 0) write_keys(m.value_head / group, 0, 1);
    }
};

}  // namespace kvsim::pipelined
