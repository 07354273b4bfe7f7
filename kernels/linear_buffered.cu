// Buffered decode and verification of a gated-delta-rule layer.
//
// With S0 the state at the last flush, c_i the sum of log gates from there to token i and w_it = exp(c_t -
// c_i), for the new tokens t in their order:
//
//   x_t = exp(c_t) S0 k_t + sum_i w_it u_i (k_i.k_t) + sum_{s<t} w_st u_s (k_s.k_t)       u_t = beta_t (v_t -
//   x_t) o_t = exp(c_t) S0 q_t + sum_i w_it u_i (k_i.q_t) + sum_{s<=t} w_st u_s (k_s.q_t) flush: S = exp(c)
//   S0 + sum_i w_i u_i k_i^T
//
// with i over the records (KVBuffer, arXiv 2605.19049, sections 3 and 4): the state is read once for all keys
// and queries, and no state of a token is ever stored. A record holds k_i as it came in and u_i over its
// norm, which leaves products as they are and rounds no key.
//
// A block stays on its multiprocessor and works through tiles of 32 state rows. Two warps ask for data, by
// bulk copies into rings of stages: one for what belongs to a value head (records, new tokens, gates), one
// for the state. The other warps each take a tile at a time, alone: tensor cores multiply its rows by all
// keys and queries, its u by the records' overlaps with them, and, in a flush, records into the state, in
// place.
//
// Products with an fp32 state take 11 bits of its words when records are bf16, which are coarser, and 16 when
// u is fp32; a flush is exact but for the records. A split state is read through its high plane.
//
// Needs compute capability 9.0. Elsewhere short rings decode with fp32 states (linear_small.hpp), and the
// rest returns cudaErrorNotSupported.

#include "kernels/launch_checks.hpp"
#include "kernels/linear_small.hpp"
#include "kernels/linear_tile_step.cuh"

namespace kvsim {
namespace {

using namespace pipelined;

// Rounds of whole heads are one less than would fit: tiles fill up the rest, so that blocks end together.
constexpr int kTailRounds = 1;
constexpr int kLeastRounds = 4;                           // below, all units are tiles
constexpr int kLeastHeadStages = 3, kMostHeadStages = 6;  // a long ring makes do with fewer
constexpr int kLeastTileStages = 4;

// Up to these bytes of state the small kernel decodes faster. On the H200, at 32 rows of 2 MiB it takes 24.4
// us and this one 24.6; at 64, 42.8 and 41.8.
constexpr std::int64_t kSmallStateBytes = 64LL << 20;

template <StateFormat kFormat, RecordFormat kRecords, int kTokenTiles, bool kVerify>
__device__ void consume(const LinearParams& p, const Shared& shared, const HeadLayout& layout,
                        const Pipeline& pipeline) {
    constexpr int kOwn = own_stages(kFormat);
    TileStep<kFormat, kRecords, kTokenTiles, kVerify> tile(p, layout);
    const int warp = threadIdx.x / 32, count = pipeline.tiles();
    if (warp >= pipeline.consumers) return;
    int turn = 0;            // which of its stages
    std::uint32_t used = 0;  // one bit a turn: flips each time that its stage has been used
    for (int i = warp; i < count; i += pipeline.consumers) {
        // Which unit the tile belongs to, and where that lies in the ring of heads.
        const int single = i - pipeline.whole * kTilesPerHead;
        const int unit = single < 0 ? i / kTilesPerHead : pipeline.whole + single;
        const int head_stage = unit % pipeline.heads;
        const unsigned parity = unit / pipeline.heads & 1;
        tile.head = shared.head + head_stage * layout.bytes;
        const auto* meta = reinterpret_cast<const HeadMeta*>(tile.head + layout.meta);
        // A warp may come so early that the stage still waits for the unit before, whose end has this parity
        // too. Once the stage is known to be the unit's, the wait means what it says.
        while (true) {
            mbar_wait(shared.head_full + head_stage, parity);
            if (reinterpret_cast<const volatile HeadMeta*>(meta)->index == unit) break;
            __nanosleep(64);
        }
        mbar_wait(shared.head_full + head_stage, parity);
        tile.m = *meta;
        const int quarter = single < 0 ? i % kTilesPerHead : tile.m.quarter;
        tile.row0 = quarter * kTileRows;
        const bool live = tile.m.slot >= 0, flush = live && tile.m.flush;
        if (live) {
            tile.load_tokens();
            tile.ring_terms();
            tile.load_values();
            if (quarter == 0) tile.write_keys_and_gates();
        } else {
            tile.write_zeros();
        }
        __syncwarp();
        if (tile.lane == 0 && !flush) mbar_arrive(shared.head_empty + head_stage);

        const int stage = warp * kOwn + turn, other = warp * kOwn + (kOwn - 1 - turn);
        char* const state = shared.stage + stage * plane_bytes(kFormat);
        mbar_wait(shared.tile_full + stage, used >> turn & 1);
        used ^= 1u << turn;
        if (live) tile.state_terms(state);
        __syncwarp();
        if (tile.lane == 0 && !flush) mbar_arrive(shared.tile_empty + stage);
        if (live) {
            tile.substitute();
            tile.write_rows();
        }
        if (flush) {
            char* const low = shared.stage + other * plane_bytes(kFormat);
            tile.fold(state, low);
            tile.store(state, low);
            if (tile.lane == 0) {
                mbar_arrive(shared.tile_empty + stage);
                if (kFormat == StateFormat::kSplit) mbar_arrive(shared.tile_empty + other);
                mbar_arrive(shared.head_empty + head_stage);
            }
        }
        turn = kOwn - 1 - turn;
    }
}

template <StateFormat kFormat, RecordFormat kRecords, int kTokenTiles, bool kVerify>
__global__ void __launch_bounds__(kThreads, 1)
    linear_buffered(const __grid_constant__ LinearParams p, const __grid_constant__ Pipeline pipeline) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char memory[];
    const HeadLayout layout(p.ring_capacity, kTokenTiles, kRecords);
    Shared shared;
    shared.stage = memory;
    shared.head = shared.stage + pipeline.stages * plane_bytes(kFormat);
    shared.tile_full = reinterpret_cast<std::uint64_t*>(shared.head + pipeline.heads * layout.bytes);
    shared.tile_empty = shared.tile_full + pipeline.stages;
    shared.head_full = shared.tile_empty + pipeline.stages;
    shared.head_empty = shared.head_full + pipeline.heads;
    if (const int i = threadIdx.x; i < pipeline.stages) {
        mbar_init(shared.tile_full + i, 1);
        mbar_init(shared.tile_empty + i, 1);
    }
    if (const int i = threadIdx.x; i < pipeline.heads) {
        mbar_init(shared.head_full + i, 1 + 32);  // the bulk copies, and those of every lane
        mbar_init(shared.head_empty + i, kTilesPerHead);
        reinterpret_cast<HeadMeta*>(shared.head + i * layout.bytes + layout.meta)->index = -1;
    }
    fence_barrier_init();
    __syncthreads();
    const int warp = threadIdx.x / 32;
    if (warp == kConsumers) {
        HeadProducer{p, shared, layout, pipeline}.run();
    } else if (warp > kConsumers) {
        load_tiles<kFormat>(p, shared, pipeline);
    } else {
        consume<kFormat, kRecords, kTokenTiles, kVerify>(p, shared, layout, pipeline);
    }
#endif
}

struct Device {
    int multiprocessors = 0, shared_bytes = 0, major = 0;

    cudaError_t read() {
        int device = 0;
        if (const cudaError_t error = cudaGetDevice(&device)) return error;
        if (const cudaError_t error =
                cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
            return error;
        if (const cudaError_t error =
                cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device))
            return error;
        return cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
};

template <StateFormat kFormat, RecordFormat kRecords, int kTokenTiles, bool kVerify>
cudaError_t launch(const LinearParams& p, const Device& device, cudaStream_t stream) {
    constexpr int kBarriers = 2 * sizeof(std::uint64_t), kOwn = own_stages(kFormat);
    const int per_head = HeadLayout(p.ring_capacity, kTokenTiles, kRecords).bytes + kBarriers;
    const int per_stage = plane_bytes(kFormat) + kBarriers;
    const auto tile_stages = [&](int heads) { return (device.shared_bytes - heads * per_head) / per_stage; };
    Pipeline pipeline{};
    const auto consumers = [&](int heads) { return min(tile_stages(heads) / kOwn, kConsumers); };
    pipeline.heads = kLeastHeadStages;
    while (pipeline.heads > 1 && tile_stages(pipeline.heads) < kLeastTileStages) --pipeline.heads;
    // More heads ahead, as long as they cost no tiles.
    while (pipeline.heads < kMostHeadStages && consumers(pipeline.heads + 1) == consumers(pipeline.heads))
        ++pipeline.heads;
    pipeline.consumers = consumers(pipeline.heads);
    if (pipeline.consumers < 1) return cudaErrorNotSupported;
    pipeline.stages = kOwn * pipeline.consumers;

    const int heads = p.batch * p.shape.v_heads, rounds = heads / device.multiprocessors;
    pipeline.whole = rounds < kLeastRounds ? 0 : rounds - kTailRounds;
    const int in_rounds = pipeline.whole * device.multiprocessors;
    pipeline.units = in_rounds + (heads - in_rounds) * kTilesPerHead;

    const auto kernel = linear_buffered<kFormat, kRecords, kTokenTiles, kVerify>;
    const int bytes = pipeline.heads * per_head + pipeline.stages * per_stage;
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
        return error;
    kernel<<<min(pipeline.units, device.multiprocessors), kThreads, bytes, stream>>>(p, pipeline);
    return cudaGetLastError();
}

// Token tiles hold four tokens.
template <StateFormat kFormat, RecordFormat kRecords>
cudaError_t launch_tokens(const LinearParams& p, bool verify, const Device& device, cudaStream_t stream) {
    if (!verify) return launch<kFormat, kRecords, 1, false>(p, device, stream);
    if (p.tokens <= 4) return launch<kFormat, kRecords, 1, true>(p, device, stream);
    if (p.tokens <= 8) return launch<kFormat, kRecords, 2, true>(p, device, stream);
    return launch<kFormat, kRecords, 3, true>(p, device, stream);
}

template <StateFormat kFormat>
cudaError_t launch_records(const LinearParams& p, bool verify, const Device& device, cudaStream_t stream) {
    return p.shape.records == RecordFormat::kBf16
               ? launch_tokens<kFormat, RecordFormat::kBf16>(p, verify, device, stream)
               : launch_tokens<kFormat, RecordFormat::kFp32U>(p, verify, device, stream);
}

cudaError_t launch_pipelined(const LinearParams& p, bool verify, const Device& device, cudaStream_t stream) {
    if (device.major < 9) return cudaErrorNotSupported;
    switch (p.shape.state) {
        case StateFormat::kFp32:
            return launch_records<StateFormat::kFp32>(p, verify, device, stream);
        case StateFormat::kBf16:
            return launch_records<StateFormat::kBf16>(p, verify, device, stream);
        case StateFormat::kSplit:
            return launch_records<StateFormat::kSplit>(p, verify, device, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

// Whether the small kernel can, and had better, do it.
bool suits_small_kernel(const LinearParams& p, const Device& device) {
    const bool can = p.shape.state == StateFormat::kFp32 && p.shape.records == RecordFormat::kBf16 &&
                     p.ring_capacity <= kMaxSmallRingCapacity;
    const std::int64_t state_bytes = std::int64_t{p.batch} * p.shape.v_heads * kDim * kDim * 4;
    return can && (state_bytes <= kSmallStateBytes || device.major < 9);
}

}  // namespace

cudaError_t launch_linear_buffered(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !has_valid_ring(params) || params.tokens != 1)
        return cudaErrorInvalidValue;
    Device device;
    if (const cudaError_t error = device.read()) return error;
    return suits_small_kernel(params, device) ? launch_linear_buffered_small(params, stream)
                                              : launch_pipelined(params, false, device, stream);
}

cudaError_t launch_linear_verify_buffered(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !has_valid_ring(params)) return cudaErrorInvalidValue;
    Device device;
    if (const cudaError_t error = device.read()) return error;
    return launch_pipelined(params, true, device, stream);
}

}  // namespace kvsim
