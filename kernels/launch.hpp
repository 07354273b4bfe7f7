// Launchers of the CUDA kernels. Each takes one params struct and a stream, enqueues one kernel and returns
// the launch error; none allocates, synchronises or reads device memory. All pointers are device pointers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/shapes.hpp"

namespace kvsim {

// Decode step of a linear-attention layer. The input contract is that of SGLang's packed decode (sglang
// 20627): q, k, v after the convolution, raw gates; l2norm of q and k, the scale k_dim^-1/2, the decay gate
// exp(-exp(A_log) softplus(a + dt_bias)) and sigmoid(b) are computed inside, in fp32 throughout.
struct LinearDecodeParams {
    LinearShape shape;  // gdn, k_dim = v_dim = 128, v_heads a multiple of k_heads
    int batch = 0;      // rows of this launch
    int slots = 0;      // requests that the pools below hold, at least batch

    // qkv, state, ring_k and ring_u are 16-byte aligned.

    const __nv_bfloat16* qkv = nullptr;  // [batch, 2 k_heads k_dim + v_heads v_dim], packed q|k|v
    const __nv_bfloat16* a = nullptr;    // [batch, v_heads]
    const __nv_bfloat16* b = nullptr;    // [batch, v_heads]
    const float* a_log = nullptr;        // [v_heads]
    const float* dt_bias = nullptr;      // [v_heads]
    const std::int32_t* slot =
        nullptr;                   // [batch], distinct; a negative slot is a padding row: its output is zero
    float* state = nullptr;        // [slots, v_heads, v_dim, k_dim]
    __nv_bfloat16* out = nullptr;  // [batch, v_heads, v_dim]

    // Buffered form only. The record of a token is its normalised key, its u and the sum of log gates since
    // the last flush. A row reads `fill` records, appends its own at index `fill` and, when its flag is set,
    // folds all fill + 1 of them into the state (the caller's next fill is then 0, else fill + 1).
    int ring_capacity = 0;                // C, 1..kMaxRingCapacity; 0 <= fill < C
    __nv_bfloat16* ring_k = nullptr;      // [slots, k_heads, C, k_dim]
    __nv_bfloat16* ring_u = nullptr;      // [slots, v_heads, C, v_dim]
    float* ring_gate = nullptr;           // [slots, v_heads, C]
    const std::int32_t* fill = nullptr;   // [batch]
    const std::uint8_t* flush = nullptr;  // [batch], 0 or 1; the scheduler decides, at any fill
};

inline constexpr int kMaxRingCapacity = 128;  // what the tests cover

// Reads and writes the state at every token: the baseline of serving engines.
// Returns cudaErrorInvalidValue for a shape outside the contract.
cudaError_t launch_linear_recurrent(const LinearDecodeParams& params, cudaStream_t stream);

// KVBuffer decode (arXiv 2605.19049, section 3): reads the state, writes one record, flushes the rows whose
// flag is set.
cudaError_t launch_linear_buffered(const LinearDecodeParams& params, cudaStream_t stream);

// Memory probes, for the roof. Sizes are multiples of 16 bytes.
struct StreamProbeParams {
    const void* source = nullptr;  // [bytes]
    void* destination = nullptr;   // [bytes]; the read probe writes one word here, and only if the data's
                                   // checksum is a value that random data does not have
    std::size_t bytes = 0;
};
cudaError_t launch_stream_copy(const StreamProbeParams& params, cudaStream_t stream);
cudaError_t launch_stream_read(const StreamProbeParams& params, cudaStream_t stream);
// A kernel that does nothing: the cost of a node of a CUDA graph.
cudaError_t launch_empty(cudaStream_t stream);

}  // namespace kvsim
