// How data reaches a short block that verifies: the shape of its rows and the copies into its shared memory
// (linear_verify_small.cu).
#pragma once

#include "kernels/linear_fragment.cuh"
#include "kernels/linear_tile_step.cuh"

namespace kvsim::small_verify {

using namespace pipelined;

constexpr int kWarps = 4;
constexpr int kBlockThreads = 32 * kWarps;
constexpr int kWarpsPerSm = 16;  // of 128 registers a thread: the state takes 64

template <StateFormat kFormat>
struct Rows : Fragment<kFormat> {
    static constexpr int kBlock = 16 * Fragment<kFormat>::kTiles * kWarps;  // state rows of a block
    static constexpr int kBlocksPerHead = kDim / kBlock;
    static constexpr int kVectorPieces =
        kBlock / 8;  // of 16 bytes of a bf16 vector that the block's rows take
    static_assert(kDim % kBlock == 0);
    static __device__ __forceinline__ int block_row() {  // first state row of the block
        return blockIdx.x % kBlocksPerHead * kBlock;
    }
};

// What depends on the tokens of a head alone, computed once for a block. It lies in shared memory before the
// head, so that its addresses are constants.
template <int kTokenTiles>
struct alignas(128) TokenTerms {
    static constexpr int kTokens = kTokenTile * kTokenTiles;
    float2 products[kTokens][kTokens];  // [i][j]: of the key of i with key and query of j, weighted
    float2 state_scale[kTokens];        // of raw products of the state with key and query
    float u_scale[kTokens];             // beta / norm of the key
};

// Shared memory of a block: TokenTerms, the head, and for each chunk of records its weighted products with
// the tokens, which are operands of the tensor cores: [chunk][token tile][lane], 16 bytes each.
template <int kTokenTiles>
constexpr int block_bytes(const HeadLayout& layout) {
    return static_cast<int>(sizeof(TokenTerms<kTokenTiles>)) + layout.bytes +
           layout.records / kChunk * kTokenTiles * 32 * static_cast<int>(sizeof(uint4));
}

// The head of a block in shared memory, laid out as a stage of the pipeline is. All threads copy, by loops
// that are short: blocks come cold to their instructions.
template <StateFormat kFormat>
struct HeadCopies {
    using R = Rows<kFormat>;
    const LinearParams& p;
    const HeadLayout& layout;
    const HeadMeta& m;
    char* const memory;
    const int block_row;  // first state row of the block
    const int key_head = blockIdx.y;

    __device__ __forceinline__ std::size_t value_index() const {
        return std::size_t(m.slot * p.shape.v_heads + m.value_head);
    }

    // Records as they lie in the ring; of u the block's rows, at their places.
    __device__ __forceinline__ void copy_ring() const {
        const char* keys = reinterpret_cast<const char*>(p.ring_k) +
                           std::size_t(m.slot * p.shape.k_heads + key_head) * p.ring_capacity * kVectorBytes;
        const int size = p.ring_capacity * kVectorBytes, live = m.fill * kVectorBytes;
        int from = m.start * kVectorBytes + 16 * int(threadIdx.x);
#pragma unroll 1
        for (int to = 16 * int(threadIdx.x); to < live; to += 16 * kBlockThreads) {
            copy_piece(memory + to, keys + wrapped(from, size));
            from += 16 * kBlockThreads;
        }
        const char* us = static_cast<const char*>(p.ring_u) + value_index() * p.ring_capacity * kVectorBytes;
        const int piece = block_row / 8 + int(threadIdx.x) % R::kVectorPieces;
#pragma unroll 1
        for (int record = threadIdx.x / R::kVectorPieces; record < m.fill;
             record += kBlockThreads / R::kVectorPieces) {
            const int at = wrapped(m.start + record, p.ring_capacity), place = 16 * (piece ^ (at % 8));
            copy_piece(memory + layout.u + record * kVectorBytes + place, us + at * kVectorBytes + place);
        }
        const float* gates = p.ring_gate + value_index() * p.ring_capacity;
#pragma unroll 1
        for (int j = threadIdx.x; j < m.fill; j += kBlockThreads)
            copy_word(memory + layout.gate + 4 * j, gates + wrapped(m.start + j, p.ring_capacity));
    }

    // The new tokens, laid out as HeadProducer does; of v the block's rows.
    __device__ __forceinline__ void copy_tokens() const {
        const int keys = p.shape.k_heads * kDim, width = 2 * keys + p.shape.v_heads * kDim;
        const int first = m.row * p.tokens;
        const __nv_bfloat16* qkv = p.qkv + std::size_t(first) * width;
        const int half = threadIdx.x % 32 / 16, piece = threadIdx.x % 16;
        const __nv_bfloat16* kq = qkv + (half == 0 ? keys : 0) + key_head * kDim + 8 * piece;
        char* vectors = memory + layout.vectors + half * kVectorStride + 16 * piece;
#pragma unroll 1
        for (int token = threadIdx.x / 32; token < p.tokens; token += kWarps)
            copy_piece(vectors + 2 * token * kVectorStride, kq + token * width);
        const int v_piece = block_row / 8 + int(threadIdx.x) % R::kVectorPieces;
        const __nv_bfloat16* v = qkv + 2 * keys + m.value_head * kDim + 8 * v_piece;
#pragma unroll 1
        for (int token = threadIdx.x / R::kVectorPieces; token < p.tokens;
             token += kBlockThreads / R::kVectorPieces)
            copy_piece(memory + layout.v + token * kVectorBytes + 16 * v_piece, v + token * width);
        char* scalars = memory + layout.scalars;
        const int i = threadIdx.x;
        if (i < 2 * p.tokens) {
            const std::size_t at = std::size_t(first + i / 2) * p.shape.v_heads + m.value_head;
            copy_half(scalars + 8 + 4 * i, i % 2 ? p.b : p.a, at);
        } else if (i < 32 && i >= 30) {
            copy_word(scalars + 4 * (i - 30), (i == 30 ? p.a_log : p.dt_bias) + m.value_head);
        }
    }
};

}  // namespace kvsim::small_verify
