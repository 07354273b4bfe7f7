// How data reaches the buffered kernel: the shares of a launch, the layout of shared memory and the two warps
// of a block that ask for it (linear_buffered.cu).
#pragma once

#include "kernels/launch.hpp"
#include "kernels/linear_common.cuh"
#include "kernels/linear_dispatch.hpp"
#include "kernels/ptx.cuh"

namespace kvsim::pipelined {

using namespace ptx;

static_assert(kHeadDim == kDim);
constexpr int kThreads = 32 * (2 + kConsumers);

// How a launch is shared out. The unit of work is a whole value head of a row and, for the last of them, a
// tile, so that blocks end together; units are dealt to the blocks in turn, which spreads rows that flush.
// A consumer has one or two tile stages of its own, so that none can wait for a phase of a barrier while the
// one before is not over (parities would not tell). Where it has two, a tile of a split state that flushes
// takes both, for its two planes.
struct Pipeline {
    int stages, heads, consumers;
    int whole;  // units of whole heads of each block; all further ones are tiles
    int units;  // of the launch

    // Of this block.
    __device__ int count() const { return (units - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x); }
    __device__ int tiles() const { return whole * kTilesPerHead + count() - whole; }
};

// One unit: a value head of a row, or the tile `quarter` of it.
struct Unit {
    int row, value_head, quarter;

    // The i-th of this block.
    __device__ Unit(const Pipeline& pipeline, int v_heads, int i) {
        const int unit = blockIdx.x + i * gridDim.x;
        const int first = pipeline.whole * gridDim.x, tile = unit - first;
        const int head = tile < 0 ? unit : first + tile / kTilesPerHead;
        quarter = tile < 0 ? 0 : tile % kTilesPerHead;
        row = head / v_heads;
        value_head = head - row * v_heads;
    }
};

struct Shared {
    std::uint64_t *tile_full, *tile_empty, *head_full, *head_empty;
    char* head;   // [heads][layout.bytes]
    char* stage;  // [stages][stage bytes]
};

__device__ __forceinline__ int wrapped(int i, int capacity) {
    return i < capacity ? i : i - capacity;
}

// Position in a ring of stages, for its producer.
struct Cursor {
    int at = 0, parity = 1;
    __device__ void advance(int size) {
        if (++at == size) {
            at = 0;
            parity ^= 1;
        }
    }
};

// One warp asks for what belongs to heads: the records, new tokens and scalars of a unit.
struct HeadProducer {
    const LinearParams& p;
    const Shared& shared;
    const HeadLayout& layout;
    const Pipeline& pipeline;
    const int lane = threadIdx.x % 32;
    const int group = p.shape.v_heads / p.shape.k_heads;
    const std::uint64_t policy = evict_first();
    Cursor heads;

    // The i-th unit of this block; the row's tables are read here.
    __device__ __forceinline__ HeadMeta describe(int i) const {
        const Unit unit(pipeline, p.shape.v_heads, i);
        return {p.slot[unit.row], p.fill[unit.row], p.start[unit.row], p.flush[unit.row],
                unit.row,         unit.value_head,  unit.quarter,      i};
    }

    // Every lane takes part; the copies end in one arrival per lane.
    __device__ __forceinline__ void copy_small(char* base, const HeadMeta& m, int row, int value_head,
                                               int key_head) {
        const int keys = p.shape.k_heads * kDim, width = 2 * keys + p.shape.v_heads * kDim;
        const __nv_bfloat16* qkv = p.qkv + std::size_t(row) * p.tokens * width;
        const int half = lane / 16, piece = lane % 16;
        const __nv_bfloat16* kq = qkv + (half == 0 ? keys : 0) + key_head * kDim + 8 * piece;
        char* vectors = base + layout.vectors + half * kVectorStride + 16 * piece;
        for (int token = 0; token < p.tokens; ++token)
            copy_piece(vectors + 2 * token * kVectorStride, kq + std::size_t(token) * width);
        const __nv_bfloat16* v = qkv + 2 * keys + value_head * kDim + 8 * piece;
        for (int token = half; token < p.tokens; token += 2)
            copy_piece(base + layout.v + token * kVectorBytes + 16 * piece, v + std::size_t(token) * width);
        char* scalars = base + layout.scalars;
        if (lane < 2 * p.tokens) {
            const std::size_t at = (std::size_t(row) * p.tokens + lane / 2) * p.shape.v_heads + value_head;
            copy_half(scalars + 8 + 4 * lane, lane % 2 ? p.b : p.a, at);
        } else if (lane >= 30) {
            copy_word(scalars + 4 * (lane - 30), (lane == 30 ? p.a_log : p.dt_bias) + value_head);
        }
        const float* ring =
            p.ring_gate + (std::size_t(m.slot) * p.shape.v_heads + value_head) * p.ring_capacity;
        for (int j = lane; j < m.fill; j += 32)
            copy_word(base + layout.gate + 4 * j, ring + wrapped(m.start + j, p.ring_capacity));
    }

    __device__ __forceinline__ void load_head(const HeadMeta& m) {
        char* base = shared.head + heads.at * layout.bytes;
        std::uint64_t* full = shared.head_full + m.index % kHeadBarriers;
        mbar_wait(shared.head_empty + heads.at, heads.parity);
        const int row = m.row, value_head = m.value_head, key_head = value_head / group;
        const bool live = m.slot >= 0;
        if (lane == 0) {
            *reinterpret_cast<HeadMeta*>(base + layout.meta) = m;
            // Each tile of a head lets its stage go; those of other units count as gone.
            if (m.index >= pipeline.whole)
                mbar_arrive_n(shared.head_empty + heads.at, 32 * (kTilesPerHead - 1));
            mbar_expect(full, live ? m.fill * (kVectorBytes + layout.u_bytes) : 0);
            if (live && m.fill > 0) {
                const char* keys =
                    reinterpret_cast<const char*>(p.ring_k) +
                    (std::size_t(m.slot) * p.shape.k_heads + key_head) * p.ring_capacity * kVectorBytes;
                const char* us =
                    static_cast<const char*>(p.ring_u) +
                    (std::size_t(m.slot) * p.shape.v_heads + value_head) * p.ring_capacity * layout.u_bytes;
                const int straight = min(m.fill, p.ring_capacity - m.start);
                bulk_load(base, keys + m.start * kVectorBytes, straight * kVectorBytes, full, policy);
                bulk_load(base + layout.u, us + m.start * layout.u_bytes, straight * layout.u_bytes, full,
                          policy);
                if (straight < m.fill) {
                    bulk_load(base + straight * kVectorBytes, keys, (m.fill - straight) * kVectorBytes, full,
                              policy);
                    bulk_load(base + layout.u + straight * layout.u_bytes, us,
                              (m.fill - straight) * layout.u_bytes, full, policy);
                }
            }
        }
        if (live) copy_small(base, m, row, value_head, key_head);
        copy_arrive(full);
        heads.advance(pipeline.heads);
    }

    __device__ void run() {
        const int count = pipeline.count();
        HeadMeta ahead{};  // of one unit a lane
        for (int i = 0; i < count; ++i) {
            if (i % 32 == 0 && i + lane < count) ahead = describe(i + lane);
            HeadMeta m;
            m.slot = __shfl_sync(kAllLanes, ahead.slot, i % 32);
            m.fill = __shfl_sync(kAllLanes, ahead.fill, i % 32);
            m.start = __shfl_sync(kAllLanes, ahead.start, i % 32);
            m.flush = __shfl_sync(kAllLanes, ahead.flush, i % 32);
            m.row = __shfl_sync(kAllLanes, ahead.row, i % 32);
            m.value_head = __shfl_sync(kAllLanes, ahead.value_head, i % 32);
            m.quarter = __shfl_sync(kAllLanes, ahead.quarter, i % 32);
            m.index = i;
            load_head(m);
        }
    }
};

// Stages of each consumer: the same bytes for every format.
struct TileCursor {
    int consumer = 0, turn = 0;
    __device__ __forceinline__ int stage(int own) const { return consumer * own + turn; }
    __device__ __forceinline__ void advance(int consumers, int own) {
        if (++consumer < consumers) return;
        consumer = 0;
        if (++turn == own) turn = 0;
    }
};

// One warp asks for the state tiles.
template <StateFormat kFormat>
__device__ void load_tiles(const LinearParams& p, const Shared& shared, const Pipeline& pipeline) {
    constexpr int kPlane = plane_bytes(kFormat), kOwn = own_stages(kFormat);
    const int lane = threadIdx.x % 32, count = pipeline.count();
    const std::uint64_t policy = evict_first(), keep = evict_last();
    std::uint32_t taken = 0;  // one bit a stage: flips each time it is filled
    TileCursor cursor;
    int ahead_slot = 0, ahead_flush = 0, ahead_tile = 0;  // of one unit a lane
    for (int i = 0; i < count; ++i) {
        if (i % 32 == 0 && i + lane < count) {
            const Unit unit(pipeline, p.shape.v_heads, i + lane);
            ahead_slot = p.slot[unit.row];
            ahead_flush = p.flush[unit.row];
            ahead_tile = unit.value_head * kTilesPerHead + unit.quarter;
        }
        const int slot = __shfl_sync(kAllLanes, ahead_slot, i % 32);
        const bool flush = __shfl_sync(kAllLanes, ahead_flush, i % 32) != 0;
        const int tile = __shfl_sync(kAllLanes, ahead_tile, i % 32);
        const int tiles = i < pipeline.whole ? kTilesPerHead : 1;
        if (lane == 0) {
            std::size_t offset =
                (std::size_t(max(slot, 0)) * p.shape.v_heads * kTilesPerHead + tile) * kPlane;
            for (int n = 0; n < tiles; ++n, offset += kPlane) {
                const int stage = cursor.stage(kOwn);
                cursor.advance(pipeline.consumers, kOwn);
                std::uint64_t* full = shared.tile_full + stage;
                mbar_wait(shared.tile_empty + stage, ~taken >> stage & 1);
                taken ^= 1u << stage;
                if (slot < 0) {
                    mbar_arrive(full);
                    continue;
                }
                const bool both = kFormat == StateFormat::kSplit && flush;
                mbar_expect(full, both ? 2 * kPlane : kPlane);
                bulk_load(shared.stage + stage * kPlane, static_cast<const char*>(p.state) + offset, kPlane,
                          full, flush ? keep : policy);
                if (both) {
                    const int low = stage ^ 1;
                    mbar_wait(shared.tile_empty + low, ~taken >> low & 1);
                    taken ^= 1u << low;
                    bulk_load(shared.stage + low * kPlane, static_cast<const char*>(p.state_low) + offset,
                              kPlane, full, keep);
                }
            }
        }
        __syncwarp();
    }
}

}  // namespace kvsim::pipelined
