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
// Needs compute capability 9.0. Elsewhere short blocks serve short rings of bf16 records (linear_small.hpp),
// and the rest returns cudaErrorNotSupported.

#include "kernels/launch_checks.hpp"
#include "kernels/linear_small.hpp"
#include "kernels/linear_tile_step.cuh"

namespace kvsim {
namespace {

using namespace pipelined;

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
        tile.head = shared.head + head_stage * layout.bytes;
        const auto* meta = reinterpret_cast<const HeadMeta*>(tile.head + layout.meta);
        mbar_wait(shared.head_full + unit % kHeadBarriers, unit / kHeadBarriers & 1);
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
        if (!flush) mbar_arrive(shared.head_empty + head_stage);

        const int stage = warp * kOwn + turn, other = warp * kOwn + (kOwn - 1 - turn);
        char* const state = shared.stage + stage * plane_bytes(kFormat);
        mbar_wait(shared.tile_full + stage, used >> turn & 1);
        used ^= 1u << turn;
        if (live) tile.state_terms(state);
        __syncwarp();
        if (!flush) mbar_arrive(shared.tile_empty + stage);
        if (live) {
            tile.substitute();
            tile.write_rows();
        }
        if (flush) {
            char* const low = shared.stage + other * plane_bytes(kFormat);
            tile.fold(state, low);
            tile.store(state, low);
            __syncwarp();
            mbar_arrive(shared.tile_empty + stage);
            if (kFormat == StateFormat::kSplit) mbar_arrive(shared.tile_empty + other);
            mbar_arrive(shared.head_empty + head_stage);
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
    shared.head_empty = shared.head_full + kHeadBarriers;
    if (const int i = threadIdx.x; i < pipeline.stages) {
        mbar_init(shared.tile_full + i, 1);
        mbar_init(shared.tile_empty + i, 32);
    }
    // The bulk copies, and those of every lane.
    if (const int i = threadIdx.x; i < kHeadBarriers) mbar_init(shared.head_full + i, 1 + 32);
    if (const int i = threadIdx.x; i < pipeline.heads) mbar_init(shared.head_empty + i, 32 * kTilesPerHead);
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
    const Stages stages = stages_of(kFormat, kRecords, p.ring_capacity, kTokenTiles, device.shared_bytes);
    if (stages.consumers < 1) return cudaErrorNotSupported;
    const Shares shares = shares_of(p.batch * p.shape.v_heads, device.multiprocessors);
    const Pipeline pipeline{stages.tiles, stages.heads, stages.consumers, shares.whole, shares.units};

    const auto kernel = linear_buffered<kFormat, kRecords, kTokenTiles, kVerify>;
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, stages.bytes))
        return error;
    kernel<<<min(pipeline.units, device.multiprocessors), kThreads, stages.bytes, stream>>>(p, pipeline);
    return cudaGetLastError();
}

template <StateFormat kFormat, RecordFormat kRecords>
cudaError_t launch_tokens(const LinearParams& p, bool verify, const Device& device, cudaStream_t stream) {
    if (!verify) return launch<kFormat, kRecords, 1, false>(p, device, stream);
    switch (token_tiles(p.tokens)) {
        case 1:
            return launch<kFormat, kRecords, 1, true>(p, device, stream);
        case 2:
            return launch<kFormat, kRecords, 2, true>(p, device, stream);
        default:
            return launch<kFormat, kRecords, 3, true>(p, device, stream);
    }
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

// The small kernels also run where the other cannot.
bool suits_small_kernel(const LinearParams& p, Form form, const Device& device) {
    return device.major < 9
               ? small_kernel_can(p.shape, p.ring_capacity)
               : buffered_kernel(p.shape, form, p.batch, p.ring_capacity) == BufferedKernel::kSmall;
}

}  // namespace

cudaError_t launch_linear_buffered(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !has_valid_ring(params) || params.tokens != 1)
        return cudaErrorInvalidValue;
    Device device;
    if (const cudaError_t error = device.read()) return error;
    return suits_small_kernel(params, Form::kBuffered, device)
               ? launch_linear_buffered_small(params, stream)
               : launch_pipelined(params, false, device, stream);
}

cudaError_t launch_linear_verify_buffered(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !has_valid_ring(params)) return cudaErrorInvalidValue;
    Device device;
    if (const cudaError_t error = device.read()) return error;
    return suits_small_kernel(params, Form::kVerifyBuffered, device)
               ? launch_linear_verify_buffered_small(params, stream)
               : launch_pipelined(params, true, device, stream);
}

}  // namespace kvsim
