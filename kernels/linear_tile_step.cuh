// What a tile of the buffered kernel does once its state is there (linear_buffered.cu).
#pragma once

#include "kernels/linear_head_terms.cuh"
#include "kernels/split_word.hpp"

namespace kvsim::pipelined {

template <StateFormat kFormat, RecordFormat kRecords, int kTokenTiles, bool kVerify, int kRowTiles = 2>
struct TileStep : HeadTerms<kFormat, kRecords, kTokenTiles, kVerify, kRowTiles> {
    using Head = HeadTerms<kFormat, kRecords, kTokenTiles, kVerify, kRowTiles>;
    using Head::kNT, Head::p, Head::layout, Head::lane, Head::g, Head::t, Head::head, Head::m, Head::row0;
    using Head::kq, Head::gram, Head::committed, Head::total, Head::k_scale, Head::q_scale, Head::u_scale;
    using Head::value, Head::x, Head::gates, Head::swizzle, Head::load_u_values, Head::columns_of;
    static constexpr int kTokens = kVerify ? (4 * kNT < kMaxTokens ? 4 * kNT : kMaxTokens) : 1;  // at most
    static constexpr bool kWide = kFormat == StateFormat::kFp32;

    __device__ TileStep(const LinearParams& params, const HeadLayout& l) : Head(params, l) {}

    // A lane's words of the row `r` of the tile: 8 columns of the 32-column group j. Two rows meet in a bank;
    // to keep them apart would cost registers, and spills take longer.
    __device__ __forceinline__ void load_row(const char* stage, int r, int j, float (&v)[8]) const {
        const auto* at = reinterpret_cast<const float4*>(stage + r * (4 * kDim) + 128 * j + 16 * t);
        const float4 first = at[0], second = at[4];
        v[0] = first.x;
        v[1] = first.y;
        v[2] = first.z;
        v[3] = first.w;
        v[4] = second.x;
        v[5] = second.y;
        v[6] = second.z;
        v[7] = second.w;
    }

    // x += exp(c) S k, exp(c) S q.
    __device__ __forceinline__ void state_terms(const char* stage) {
        float acc[kRowTiles][kNT][4] = {};
        if constexpr (kWide) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int a = 0; a < kRowTiles; ++a) {
                    float r0[8], r1[8];
                    load_row(stage, 16 * a + g, j, r0);
                    load_row(stage, 16 * a + 8 + g, j, r1);
                    if constexpr (kRecords == RecordFormat::kBf16) {
                        // 11 bits of the state's words: finer than the records'.
#pragma unroll
                        for (int s = 0; s < 4; ++s) {
#pragma unroll
                            for (int n = 0; n < kNT; ++n) {
                                const unsigned w = kq[n][2 * j + s / 2][s % 2];
                                mma_tf32(acc[a][n], r0[2 * s], r1[2 * s], r0[2 * s + 1], r1[2 * s + 1],
                                         w << 16, w & 0xffff0000u);
                            }
                        }
                    } else {
#pragma unroll
                        for (int s = 0; s < 2; ++s) {
                            unsigned h[4], l[4];
                            split_pair(r0[4 * s], r0[4 * s + 1], h[0], l[0]);
                            split_pair(r1[4 * s], r1[4 * s + 1], h[1], l[1]);
                            split_pair(r0[4 * s + 2], r0[4 * s + 3], h[2], l[2]);
                            split_pair(r1[4 * s + 2], r1[4 * s + 3], h[3], l[3]);
#pragma unroll
                            for (int n = 0; n < kNT; ++n) {
                                mma(acc[a][n], h[0], h[1], h[2], h[3], kq[n][2 * j + s][0],
                                    kq[n][2 * j + s][1]);
                                mma(acc[a][n], l[0], l[1], l[2], l[3], kq[n][2 * j + s][0],
                                    kq[n][2 * j + s][1]);
                            }
                        }
                    }
                }
            }
        } else {
#pragma unroll
            for (int jj = 0; jj < 2; ++jj) {
#pragma unroll
                for (int a = 0; a < kRowTiles; ++a) {
                    uint4 w[2][2];  // [row half][group]
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        const char* at = stage + (16 * a + 8 * h + g) * (2 * kDim) + 128 * jj + 16 * t;
                        const bool odd = g & 1;
                        const uint4 first = *reinterpret_cast<const uint4*>(at + (odd ? 64 : 0));
                        const uint4 second = *reinterpret_cast<const uint4*>(at + (odd ? 0 : 64));
                        w[h][0] = odd ? second : first;
                        w[h][1] = odd ? first : second;
                    }
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const int s = 2 * (2 * jj + i);
#pragma unroll
                        for (int n = 0; n < kNT; ++n) {
                            mma(acc[a][n], w[0][i].x, w[1][i].x, w[0][i].y, w[1][i].y, kq[n][s][0],
                                kq[n][s][1]);
                            mma(acc[a][n], w[0][i].z, w[1][i].z, w[0][i].w, w[1][i].w, kq[n][s + 1][0],
                                kq[n][s + 1][1]);
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const float decay = __expf(total[n]);
#pragma unroll
            for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    x[a][n][i] = fmaf(decay * (i % 2 ? q_scale[n] : k_scale[n]), acc[a][n][i], x[a][n][i]);
        }
    }

    // This tile's rows of the outputs and of the records' u.
    __device__ __forceinline__ void write_rows() const {
        const std::size_t value_ring = std::size_t(m.slot * p.shape.v_heads + m.value_head) * p.ring_capacity;
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
            const int token = t + 4 * n;
            if constexpr (kRecords == RecordFormat::kFp32U) {
                if (token < p.tokens) {
                    const int at = wrapped(m.start + m.fill + token, p.ring_capacity);
                    float* u = static_cast<float*>(p.ring_u) + (value_ring + at) * kDim;
#pragma unroll
                    for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
                        for (int h = 0; h < 2; ++h)
                            u[ring_u_position(kRecords, row0 + 16 * a + 8 * h + g, at)] = scaled_u(a, h, n);
                }
            }
            // Transposed, so that a thread holds two neighbouring rows: of u or of the output, by its column.
            const int of = g / 2 + 4 * n,
                      at = wrapped(m.start + m.fill + min(of, p.tokens - 1), p.ring_capacity);
            const bool query = g % 2, output = query || kRecords != RecordFormat::kBf16;
            const std::size_t vector =
                output ? std::size_t((m.row * p.tokens + of) * p.shape.v_heads + m.value_head)
                       : value_ring + at;
            // Pieces of the output lie in their order, as do those of u at place 0 of a ring.
            const int place = output ? 0 : at;
            __nv_bfloat16* to = (output ? p.out : static_cast<__nv_bfloat16*>(p.ring_u)) + vector * kDim;
#pragma unroll
            for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const unsigned pair = movmatrix(pack_bf16(scaled_u(a, h, n), x[a][n][2 * h + 1]));
                    const int r = row0 + 16 * a + 8 * h + 2 * t;
                    if (of < p.tokens && (query || kRecords == RecordFormat::kBf16))
                        *reinterpret_cast<unsigned*>(to + ring_u_position(RecordFormat::kBf16, r, place)) =
                            pair;
                }
        }
    }

    __device__ __forceinline__ float scaled_u(int a, int h, int n) const {
        return u_scale[n] * (value[a][h][n] - x[a][n][2 * h]);
    }

    // Forward substitution over the new tokens.
    __device__ __forceinline__ void substitute() {
#pragma unroll
        for (int s = 0; s < kTokens; ++s) {
            if (kVerify && s >= p.tokens) break;
            const float total_s = __shfl_sync(kAllLanes, total[s / 4], (lane & ~3) | (s % 4));
            float u[kRowTiles][2];
            share_u(s, u);
            const int source = 4 * (2 * s % 8) + t;
#pragma unroll
            for (int n = s / 4; n < kNT; ++n) {
                const float kk_product =
                    __shfl_sync(kAllLanes, gram[2 * s / 16][n][2 * (2 * s / 8 % 2)], source);
                const float kq_product =
                    __shfl_sync(kAllLanes, gram[2 * s / 16][n][2 * (2 * s / 8 % 2) + 1], source);
                const int token = t + 4 * n;
                const float decay = __expf(total[n] - total_s);
                add_u(n,
                      {token > s ? decay * kk_product * k_scale[n] : 0.0f,
                       token >= s ? decay * kq_product * q_scale[n] : 0.0f},
                      u);
            }
        }
    }
    // u of token s, in all lanes of its rows.
    __device__ __forceinline__ void share_u(int s, float (&u)[kRowTiles][2]) const {
#pragma unroll
        for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                u[a][h] = __shfl_sync(kAllLanes, scaled_u(a, h, s / 4), (lane & ~3) | (s % 4));
    }
    // u k^T of an earlier token, times the tokens of a tile. products: of its key with theirs and their
    // queries.
    __device__ __forceinline__ void add_u(int n, float2 products, const float (&u)[kRowTiles][2]) {
#pragma unroll
        for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                x[a][n][2 * h] = fmaf(products.x, u[a][h], x[a][n][2 * h]);
                x[a][n][2 * h + 1] = fmaf(products.y, u[a][h], x[a][n][2 * h + 1]);
            }
    }

    // Eight columns of a row of 16-bit planes in fp32, and back. The low plane is that of the split format.
    static __device__ __forceinline__ void decode_words(const uint4& high, const uint4& low, float (&v)[8]) {
        const unsigned h[4] = {high.x, high.y, high.z, high.w}, l[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (kFormat == StateFormat::kBf16) {
                v[2 * i] = low_half(h[i]);
                v[2 * i + 1] = high_half(h[i]);
            } else {
                v[2 * i] = __uint_as_float(merge_word({std::uint16_t(h[i]), std::uint16_t(l[i])}));
                v[2 * i + 1] =
                    __uint_as_float(merge_word({std::uint16_t(h[i] >> 16), std::uint16_t(l[i] >> 16)}));
            }
        }
    }
    static __device__ __forceinline__ void encode_words(const float (&v)[8], uint4& high, uint4& low) {
        if constexpr (kFormat == StateFormat::kBf16) {
            high = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                    pack_bf16(v[6], v[7])};
        } else {
            unsigned h[4], l[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const SplitWord a = split_word(__float_as_uint(v[2 * i])),
                                b = split_word(__float_as_uint(v[2 * i + 1]));
                h[i] = a.high | unsigned(b.high) << 16;
                l[i] = a.low | unsigned(b.low) << 16;
            }
            high = {h[0], h[1], h[2], h[3]};
            low = {l[0], l[1], l[2], l[3]};
        }
    }

    // A lane's columns of a row in fp32, whatever the format.
    __device__ __forceinline__ void read_tile(const char* stage, const char* low_stage, int r, int j,
                                              float (&v)[8]) const {
        if constexpr (kWide) {
            load_row(stage, r, j, v);
        } else {
            const int at = r * (2 * kDim) + 64 * j + 16 * t;
            uint4 low{};
            if constexpr (kFormat == StateFormat::kSplit)
                low = *reinterpret_cast<const uint4*>(low_stage + at);
            decode_words(*reinterpret_cast<const uint4*>(stage + at), low, v);
        }
    }
    __device__ __forceinline__ void write_tile(char* stage, char* low_stage, int r, int j,
                                               const float (&v)[8]) const {
        if constexpr (kWide) {
            const bool odd = g & 1;
            char* at = stage + r * (4 * kDim) + 128 * j + 16 * t;
            const float4 first = odd ? float4{v[4], v[5], v[6], v[7]} : float4{v[0], v[1], v[2], v[3]};
            const float4 second = odd ? float4{v[0], v[1], v[2], v[3]} : float4{v[4], v[5], v[6], v[7]};
            *reinterpret_cast<float4*>(at + (odd ? 64 : 0)) = first;
            *reinterpret_cast<float4*>(at + (odd ? 0 : 64)) = second;
        } else {
            const int at = r * (2 * kDim) + 64 * j + 16 * t;
            uint4 high, low;
            encode_words(v, high, low);
            *reinterpret_cast<uint4*>(stage + at) = high;
            if constexpr (kFormat == StateFormat::kSplit) *reinterpret_cast<uint4*>(low_stage + at) = low;
        }
    }

    // w_i of this lane's records of a chunk: 2t, 2t + 1, 2t + 8, 2t + 9.
    __device__ __forceinline__ void fold_weights(int first, float end, float (&weight)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int record = first + 2 * t + (i & 1) + 8 * (i / 2);
            weight[i] = record < m.fill ? __expf(end - gates()[record]) : 0.0f;
        }
    }
    // w_i u_i of 16 rows and a chunk of records as two bf16 operands.
    __device__ __forceinline__ void fold_rows(int a, int first, const float (&weight)[4], unsigned (&high)[4],
                                              unsigned (&rest)[4]) const {
        float v[2][4];
        load_u_values(a, first, m.fill, v);
        split_pair(weight[0] * v[0][0], weight[1] * v[0][1], high[0], rest[0]);
        split_pair(weight[0] * v[1][0], weight[1] * v[1][1], high[1], rest[1]);
        split_pair(weight[2] * v[0][2], weight[3] * v[0][3], high[2], rest[2]);
        split_pair(weight[2] * v[1][2], weight[3] * v[1][3], high[3], rest[3]);
    }
    __device__ __forceinline__ void fold_operands(int first, float end, unsigned (&high)[kRowTiles][4],
                                                  unsigned (&rest)[kRowTiles][4]) const {
        float weight[4];
        fold_weights(first, end, weight);
#pragma unroll
        for (int a = 0; a < kRowTiles; ++a) fold_rows(a, first, weight, high[a], rest[a]);
    }
    // The keys of a chunk of records, columns of group j, as operands B.
    __device__ __forceinline__ void fold_keys(int first, int j, unsigned (&b)[2][4]) const {
        const LiveMask live(first, m.fill, t);
        const char* keys = head + (first + lane % 16) * kVectorBytes;
        const int mix = swizzle(first + lane % 16);
        ldmatrix_trans(b[0], keys + 16 * ((4 * j + lane / 16) ^ mix));
        ldmatrix_trans(b[1], keys + 16 * ((4 * j + 2 + lane / 16) ^ mix));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            b[i][0] &= live.low;
            b[i][1] &= live.high;
            b[i][2] &= live.low;
            b[i][3] &= live.high;
        }
    }

    // S = exp(c) S + sum_i w_i u_i k_i^T (+ the new token's, in decode), in place in shared memory.
    __device__ __forceinline__ void fold(char* stage, char* low_stage) {
        const float end = kVerify ? committed() : __shfl_sync(kAllLanes, total[0], 0);
        const float decay = __expf(end);
        float fresh[kRowTiles][2];
#pragma unroll
        for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                fresh[a][h] = kVerify ? 0.0f : __shfl_sync(kAllLanes, scaled_u(a, h, 0), lane & ~3);
        unsigned high[kRowTiles][4], rest[kRowTiles][4];
        const bool single = m.fill <= kChunk;
        if (single) fold_operands(0, end, high, rest);
#pragma unroll 1
        for (int j = 0; j < 4; ++j) {
            float c[kRowTiles][4][4];
            const uint4 key = columns_of(head + layout.vectors, j);
            const unsigned key_words[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
            for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float v[8];
                    read_tile(stage, low_stage, 16 * a + 8 * h + g, j, v);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        c[a][i][2 * h] = decay * v[2 * i];
                        c[a][i][2 * h + 1] = decay * v[2 * i + 1];
                        if constexpr (!kVerify) {
                            c[a][i][2 * h] = fmaf(fresh[a][h], low_half(key_words[i]), c[a][i][2 * h]);
                            c[a][i][2 * h + 1] =
                                fmaf(fresh[a][h], high_half(key_words[i]), c[a][i][2 * h + 1]);
                        }
                    }
                }
#pragma unroll 1
            for (int first = 0; first < m.fill; first += kChunk) {
                if (!single) fold_operands(first, end, high, rest);
                unsigned b[2][4];
                fold_keys(first, j, b);
#pragma unroll
                for (int a = 0; a < kRowTiles; ++a) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const unsigned b0 = b[i / 2][2 * (i % 2)], b1 = b[i / 2][2 * (i % 2) + 1];
                        mma(c[a][i], high[a][0], high[a][1], high[a][2], high[a][3], b0, b1);
                        mma(c[a][i], rest[a][0], rest[a][1], rest[a][2], rest[a][3], b0, b1);
                    }
                }
            }
#pragma unroll
            for (int a = 0; a < kRowTiles; ++a)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float v[8] = {c[a][0][2 * h],     c[a][0][2 * h + 1], c[a][1][2 * h],
                                        c[a][1][2 * h + 1], c[a][2][2 * h],     c[a][2][2 * h + 1],
                                        c[a][3][2 * h],     c[a][3][2 * h + 1]};
                    write_tile(stage, low_stage, 16 * a + 8 * h + g, j, v);
                }
        }
    }

    // Outputs of a padding row.
    __device__ __forceinline__ void write_zeros() const {
        if (lane >= 16 * kRowTiles) return;
        for (int token = 0; token < p.tokens; ++token)
            p.out[((std::size_t(m.row) * p.tokens + token) * p.shape.v_heads + m.value_head) * kDim + row0 +
                  lane] = __float2bfloat16(0.0f);
    }

    // Writes the tile back. The stages are free when it returns.
    __device__ __forceinline__ void store(const char* stage, const char* low_stage) const {
        fence_for_bulk_copies();
        __syncwarp();
        if (lane == 0) {
            constexpr int kPlane = plane_bytes(kFormat);
            const std::size_t offset =
                ((std::size_t(m.slot) * p.shape.v_heads + m.value_head) * kTilesPerHead + row0 / kTileRows) *
                kPlane;
            bulk_store(static_cast<char*>(p.state) + offset, stage, kPlane);
            if (kFormat == StateFormat::kSplit)
                bulk_store(static_cast<char*>(p.state_low) + offset, low_stage, kPlane);
            finish_bulk_stores();
        }
    }
};

}  // namespace kvsim::pipelined
