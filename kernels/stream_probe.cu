// Memory probes: the roof that the kernels are compared with.
//
// Every thread issues kPieces independent 16-byte loads before it uses any of them, a block apart so that
// each warp access covers four full 128-byte lines. With eight resident blocks of 256 threads an SM has up to
// 128 KiB in flight, more than latency times bandwidth of HBM3 asks for. The grid covers the data once:
// blocks that finish early make room for others, which balances the SMs better than a fixed stride.

#include "kernels/launch.hpp"
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

}  // namespace

cudaError_t launch_stream_copy(const StreamProbeParams& params, cudaStream_t stream) {
    return launch_by_size<true>(params, stream);
}

cudaError_t launch_stream_read(const StreamProbeParams& params, cudaStream_t stream) {
    return launch_by_size<false>(params, stream);
}

cudaError_t launch_empty(cudaStream_t stream) {
    nothing<<<1, 32, 0, stream>>>();
    return cudaGetLastError();
}

}  // namespace kvsim
