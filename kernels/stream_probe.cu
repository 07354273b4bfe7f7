// Memory probes: the roof that the kernels are compared with.
//
// Of the copy and the read, every thread issues kPieces independent 16-byte loads before it uses any of them,
// a block apart so that each warp access covers four full 128-byte lines. With eight resident blocks of 256
// threads an SM has up to 128 KiB in flight, more than latency times bandwidth of HBM3 asks for. The grid
// covers the data once: blocks that finish early make room for others, which balances the SMs better than a
// fixed stride.

#include "kernels/launch.hpp"
#include "kernels/linear_fragment.cuh"
#include "kernels/stream_probe.hpp"

namespace kvsim {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kEnoughBlocks =
    1024;  // several per SM on every GPU; small sizes use fewer pieces per thread

__global__ void nothing() {}

template <bool kCopy, int kPieces>
__global__ void __launch_bounds__(kThreads)
    stream(const uint4* __restrict__ source, uint4* __restrict__ destination, std::size_t pieces) {
    const std::size_t first = std::size_t(blockIdx.x) * (kThreads * kPieces) + threadIdx.x;
    uint4 data[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        const std::size_t piece = first + std::size_t(i) * kThreads;
        data[i] = piece < pieces ? __ldcs(source + piece) : uint4{0, 0, 0, 0};
    }
    if constexpr (kCopy) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            const std::size_t piece = first + std::size_t(i) * kThreads;
            if (piece < pieces) __stcs(destination + piece, data[i]);
        }
    } else {
        std::uint32_t sum = 0;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) sum ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
        if (sum == kStreamReadMark) *reinterpret_cast<std::uint32_t*>(destination) = sum;
    }
}

template <bool kCopy, int kPieces>
cudaError_t launch(const StreamProbeParams& p, cudaStream_t cuda_stream) {
    const std::size_t pieces = p.bytes / sizeof(uint4);
    constexpr std::size_t kPerBlock = kThreads * kPieces;
    const auto blocks = static_cast<unsigned>((pieces + kPerBlock - 1) / kPerBlock);
    stream<kCopy, kPieces><<<blocks, kThreads, 0, cuda_stream>>>(static_cast<const uint4*>(p.source),
                                                                 static_cast<uint4*>(p.destination), pieces);
    return cudaGetLastError();
}

template <bool kCopy>
cudaError_t launch_by_size(const StreamProbeParams& p, cudaStream_t stream) {
    if (!p.source || !p.destination || p.bytes == 0 || p.bytes % sizeof(uint4) != 0)
        return cudaErrorInvalidValue;
    const std::size_t blocks = p.bytes / (sizeof(uint4) * kThreads);  // with one piece per thread
    if (blocks >= 4 * kEnoughBlocks) return launch<kCopy, 4>(p, stream);
    if (blocks >= 2 * kEnoughBlocks) return launch<kCopy, 2>(p, stream);
    return launch<kCopy, 1>(p, stream);
}

constexpr int kAppendThreads = 64;
constexpr int kWordsPerVector = kAppendVectorBytes / sizeof(std::uint32_t);
using StateRows = Lines<StateFormat::kFp32>;
static_assert(kAppendThreads / 32 * StateRows::kWarpRows * StateRows::kRowBytes == kAppendBlockBytes);
static_assert(kAppendThreads == kWordsPerVector && kAppendThreads / 32 * 8 == kAppendWords);

__global__ void __launch_bounds__(kAppendThreads) append(StreamAppendParams p) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const std::size_t block = blockIdx.x;
    const char* from = static_cast<const char*>(p.source) + block * kAppendBlockBytes +
                       (warp * StateRows::kWarpRows + lane / 8) * StateRows::kRowBytes + 16 * (lane % 8);
    const std::uint64_t policy = ptx::evict_first();
    StateRows::State state;
#pragma unroll
    for (int m = 0; m < StateRows::kTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int j = 0; j < StateRows::kLines; ++j)
                state[m][h][j] = StateRows::load(from + StateRows::offset(m, h, j), policy);
    // Compilers would spare registers by sums between the loads, so that fewer were under way. No load moves
    // behind a barrier, and no sum before the zero that comes from it.
    const std::uint32_t zero = __syncthreads_or(0);
    std::uint32_t sum = 0;
#pragma unroll
    for (int m = 0; m < StateRows::kTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int j = 0; j < StateRows::kLines; ++j) {
                const uint4& w = state[m][h][j];
                sum ^= (w.x + zero) ^ (w.y + zero) ^ (w.z + zero) ^ (w.w + zero);
            }
    sum ^= __shfl_xor_sync(kAllLanes, sum, 8);
    sum ^= __shfl_xor_sync(kAllLanes, sum, 16);

    const int word = 8 * warp + lane % 8;
    if (lane < 8) p.out[block * kAppendWords + word] = sum;
    const std::size_t head = block / kAppendBlocksPerHead, part = block % kAppendBlocksPerHead;
    if (lane >= 8 && lane < 16)
        p.ring_u[(head * kAppendRecords + p.record) * kWordsPerVector + part * kAppendWords + word] = sum;
    const std::size_t key = block / kAppendBlocksPerKey;
    if (block % kAppendBlocksPerKey == 0)
        p.ring_k[(key * kAppendRecords + p.record) * kWordsPerVector + threadIdx.x] = sum;
}

}  // namespace

cudaError_t launch_stream_copy(const StreamProbeParams& params, cudaStream_t stream) {
    return launch_by_size<true>(params, stream);
}

cudaError_t launch_stream_read(const StreamProbeParams& params, cudaStream_t stream) {
    return launch_by_size<false>(params, stream);
}

cudaError_t launch_stream_append(const StreamAppendParams& p, cudaStream_t stream) {
    if (!p.source || !p.out || !p.ring_u || !p.ring_k || p.bytes == 0 || p.bytes % kAppendUnit != 0 ||
        p.record < 0 || p.record >= kAppendRecords)
        return cudaErrorInvalidValue;
    append<<<static_cast<unsigned>(p.bytes / kAppendBlockBytes), kAppendThreads, 0, stream>>>(p);
    return cudaGetLastError();
}

cudaError_t launch_empty(cudaStream_t stream) {
    nothing<<<1, 32, 0, stream>>>();
    return cudaGetLastError();
}

}  // namespace kvsim
