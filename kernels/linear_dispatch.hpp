// Which kernel serves a buffered launch, and how the pipelined one shares it out: what the launcher does
// (linear_buffered.cu), and what a law of its time has to know. Plain arithmetic.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/shapes.hpp"

namespace kvsim {

// Small: many short blocks (linear_small.hpp). Pipelined: one block per multiprocessor, which stays.
enum class BufferedKernel : std::uint8_t { kSmall, kPipelined };
inline constexpr std::array<std::string_view, 2> kBufferedKernelNames{"small", "pipelined"};
constexpr std::string_view name(BufferedKernel k) {
    return kBufferedKernelNames[static_cast<std::size_t>(k)];
}

// Room for the rings of eight blocks and the L1 of their loads; two chunks of records in registers.
inline constexpr int kMaxSmallRingCapacity = 32;

// Up to these bytes of fp32 state, verification by short blocks is faster, or as fast. On the H200, five
// tokens take 51 against 50 us at 64 rows of 2 MiB, 94 against 86 at 128, 355 against 306 at 512. States of
// 16 bits leave less to overlap: short blocks are faster at all batches.
inline constexpr std::int64_t kSmallVerifyBytes = std::int64_t{64} << 20;

constexpr std::int64_t state_bytes(const LinearShape& s, std::int64_t rows) {
    return rows * s.v_heads * s.v_dim * s.k_dim * bytes_per_element(s.state);
}

// State bytes of a launch from which the L2 is asked to keep what is read, when the same lines are written a
// moment later: by the recurrent form, and by a flush of short blocks in decode. 0.8 of the H200's L2. There
// the recurrent form loses 3 % by keeping 16 rows of 2 MiB and gains 1 % at 24, 2 % at 32, 4 % at 128; a
// flush takes 14.2 against 12.8 us at 8 rows, 147 against 156 at 128.
inline constexpr std::int64_t kKeepFromBytes = std::int64_t{48} << 20;

constexpr bool small_kernel_can(const LinearShape& s, int ring_capacity) {
    return s.records == RecordFormat::kBf16 && ring_capacity <= kMaxSmallRingCapacity;
}

// The faster one that can, where both run (compute capability 9.0).
constexpr BufferedKernel buffered_kernel(const LinearShape& s, Form form, std::int64_t rows,
                                         int ring_capacity) {
    const bool small =
        form == Form::kBuffered || s.state != StateFormat::kFp32 || state_bytes(s, rows) <= kSmallVerifyBytes;
    return small_kernel_can(s, ring_capacity) && small ? BufferedKernel::kSmall : BufferedKernel::kPipelined;
}

namespace pipelined {

inline constexpr int kHeadDim = 128;  // k_dim and v_dim
inline constexpr int kTileRows = 32;  // state rows of a tile
inline constexpr int kTilesPerHead = kHeadDim / kTileRows;
inline constexpr int kConsumers =
    10;                            // warps that compute, most: with two that ask for data, three a scheduler
inline constexpr int kChunk = 16;  // records of one tensor core instruction
inline constexpr int kTokenTile = 4;  // new tokens of one
inline constexpr int kVectorBytes = 2 * kHeadDim;
// Strides in shared memory, so that eight rows of 16 bytes, or two of 64, fall into distinct banks.
inline constexpr int kVectorStride = kVectorBytes + 64;

constexpr int token_tiles(std::int64_t tokens) {
    return static_cast<int>((tokens + kTokenTile - 1) / kTokenTile);
}

constexpr int plane_bytes(StateFormat f) {
    return kTileRows * kHeadDim * (f == StateFormat::kFp32 ? 4 : 2);
}

// Tile stages of a consumer: the same bytes in flight for every format.
constexpr int own_stages(StateFormat f) {
    return f == StateFormat::kFp32 ? 1 : 2;
}

// What is known of a unit before its data comes. It lies at the end of the unit's head stage.
struct HeadMeta {
    int slot, fill, start, flush;         // of the row
    int row, value_head, quarter, index;  // index: of the unit among those of the block
};

// Shared memory of one value head of a row: records, new tokens and their scalars.
struct HeadLayout {
    int records, u_bytes;
    int u, vectors, v, gate, scalars, meta, bytes;

    constexpr HeadLayout(int capacity, int token_tiles, RecordFormat format)
        : records((capacity + kChunk - 1) / kChunk * kChunk),
          u_bytes(kHeadDim * (format == RecordFormat::kFp32U ? 4 : 2)),
          u(records * kVectorBytes),
          vectors(u + records * u_bytes),
          v(vectors + 8 * token_tiles * kVectorStride),
          gate(v + kTokenTile * token_tiles * kVectorBytes),
          scalars(gate + 4 * records),
          meta((scalars + 4 * (2 + 2 * kTokenTile * token_tiles) + 15) / 16 * 16),
          bytes((meta + static_cast<int>(sizeof(HeadMeta)) + 127) / 128 * 128) {}
};

// Stages of a block, with the barriers of each.
struct Stages {
    int heads = 0, consumers = 0, tiles = 0;
    int bytes = 0;  // shared memory of all
};

// A consumer waits for the heads that it has a tile of, and may be as many tiles ahead of one that still
// fills as there are consumers. With a barrier for each of so many heads beside those in a stage, the phase
// that it waits for is never mistaken for the one before.
inline constexpr int kHeadBarriers = 16;
inline constexpr int kLeastHeadStages = 3, kMostHeadStages = 6;  // a long ring makes do with fewer
inline constexpr int kLeastTileStages = 4;
static_assert(kHeadBarriers >= kConsumers + kMostHeadStages);

// consumers == 0: there is no room for one.
constexpr Stages stages_of(StateFormat state, RecordFormat records, int ring_capacity, int token_tiles,
                           int shared_bytes) {
    constexpr int kBarriers = 2 * sizeof(std::uint64_t);
    const int own = own_stages(state);
    const int per_head = HeadLayout(ring_capacity, token_tiles, records).bytes + kBarriers;
    shared_bytes -= kHeadBarriers * static_cast<int>(sizeof(std::uint64_t));
    const int per_tile = plane_bytes(state) + kBarriers;
    const auto tiles = [=](int heads) { return (shared_bytes - heads * per_head) / per_tile; };
    const auto consumers = [=](int heads) { return std::min(tiles(heads) / own, kConsumers); };
    Stages s;
    s.heads = kLeastHeadStages;
    while (s.heads > 1 && tiles(s.heads) < kLeastTileStages) --s.heads;
    // More heads ahead, as long as they cost no tiles.
    while (s.heads < kMostHeadStages && consumers(s.heads + 1) == consumers(s.heads)) ++s.heads;
    s.consumers = std::max(consumers(s.heads), 0);
    s.tiles = own * s.consumers;
    s.bytes =
        s.heads * per_head + s.tiles * per_tile + kHeadBarriers * static_cast<int>(sizeof(std::uint64_t));
    return s;
}

// Shares of a launch. Rounds of whole heads are one less than would fit: tiles fill up the rest, so that
// blocks end together.
struct Shares {
    int whole = 0;  // units of whole heads of each block; all further ones are tiles
    int units = 0;  // of the launch
};

inline constexpr int kTailRounds = 1;
inline constexpr int kLeastRounds = 4;  // below, all units are tiles

constexpr Shares shares_of(int heads, int multiprocessors) {
    const int rounds = heads / multiprocessors;
    const int whole = rounds < kLeastRounds ? 0 : rounds - kTailRounds;
    const int in_rounds = whole * multiprocessors;
    return {whole, in_rounds + (heads - in_rounds) * kTilesPerHead};
}

}  // namespace pipelined
}  // namespace kvsim
