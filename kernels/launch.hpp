// Launchers of the CUDA kernels. Each takes one params struct and a stream, enqueues one kernel and returns
// the launch error; none allocates, synchronises or reads device memory. All pointers are device pointers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/clock_stamp.hpp"
#include "kernels/shapes.hpp"
#include "kernels/traffic_stream.hpp"

namespace kvsim {

// One step of a linear-attention layer, for one new token a row (decode) or several (verification of drafts).
// The input contract is that of SGLang's packed decode (sglang 20627): q, k, v after the convolution, raw
// gates; l2norm of q and k, the scale k_dim^-1/2, the decay gate exp(-exp(A_log) softplus(a + dt_bias)) and
// sigmoid(b) are computed inside. Sums are fp32.
struct LinearParams {
    LinearShape shape;  // gdn, k_dim = v_dim = 128, v_heads a multiple of k_heads; state fp32, bf16 or split
    int batch = 0;      // rows of this launch
    int slots = 0;      // requests that the pools below hold, at least batch
    int tokens = 1;     // T, new tokens of every row: 1 for decode, 1..kMaxTokens for verification

    // qkv, states, ring_k, ring_u and token_states are 16-byte aligned, a, b and out 4-byte aligned.

    const __nv_bfloat16* qkv = nullptr;  // [batch, T, 2 k_heads k_dim + v_heads v_dim], packed q|k|v
    const __nv_bfloat16* a = nullptr;    // [batch, T, v_heads]
    const __nv_bfloat16* b = nullptr;    // [batch, T, v_heads]
    const float* a_log = nullptr;        // [v_heads]
    const float* dt_bias = nullptr;      // [v_heads]
    const std::int32_t* slot =
        nullptr;                // [batch], distinct; a negative slot is a padding row: its outputs are zero
    void* state = nullptr;      // [slots, v_heads, v_dim, k_dim]; of the split format the high plane
    void* state_low = nullptr;  // split format: the low plane, same shape
    __nv_bfloat16* out = nullptr;  // [batch, T, v_heads, v_dim]

    // Buffered forms. The record of a token is its key as it came in, u divided by that key's norm (so that
    // the product of the two is u k^T), and the sum of log gates since the last flush. Record j of a row lies
    // at (start + j) mod C, ordered inside by ring_key_position and ring_u_position.
    int ring_capacity = 0;                // C, 1..kMaxRingCapacity; 0 <= start < C; fill + T <= C
    __nv_bfloat16* ring_k = nullptr;      // [slots, k_heads, C, k_dim]
    void* ring_u = nullptr;               // [slots, v_heads, C, v_dim], bf16 or fp32 (shape.records)
    float* ring_gate = nullptr;           // [slots, v_heads, C]
    const std::int32_t* start = nullptr;  // [batch]
    const std::int32_t* fill = nullptr;   // [batch]
    const std::uint8_t* flush = nullptr;  // [batch], 0 or 1; the scheduler decides, at any fill

    // Verification with stored states.
    void* token_states = nullptr;  // [batch, T, v_heads, v_dim, k_dim], the state after each token
};

inline constexpr int kMaxRingCapacity = 128;  // what the tests cover
inline constexpr int kMaxTokens = 9;

// Where column c of the key at ring index `at` lies in it. Kernels hold eight columns of a state row's 32 in
// each of four threads, as 16-byte pieces of that row come: of an fp32 row the columns 4 t .. 4 t + 3 and
// those 16 further, of 16-bit planes 8 t .. 8 t + 7. Of these, the tensor cores take two at a time from each
// thread; that is the order of a key, in pieces of 16 bytes that are swizzled by the index, so that a run of
// records copied as it is falls into distinct banks of shared memory.
constexpr int ring_key_position(StateFormat state, int c, int at) {
    const bool wide = state == StateFormat::kFp32;
    const int thread = wide ? c % 16 / 4 : c % 32 / 8;
    const int element = wide ? c % 32 / 16 * 4 + c % 4 : c % 8;
    const int position = c / 32 * 32 + element / 2 * 8 + thread * 2 + c % 2;
    return ((position / 8) ^ (at % 8)) * 8 + position % 8;
}
// Where row r of u lies: swizzled likewise.
constexpr int ring_u_position(RecordFormat format, int r, int at) {
    const int piece = format == RecordFormat::kFp32U ? 4 : 8;
    return ((r / piece) ^ (at % 8)) * piece + r % piece;
}

// All return cudaErrorInvalidValue for a shape or pointer outside the contract. Before compute
// capability 9.0, buffered forms return cudaErrorNotSupported, but for bf16 records and C <= 32.

// Decode that reads and writes the state at every token: the baseline of serving engines.
cudaError_t launch_linear_recurrent(const LinearParams& params, cudaStream_t stream);

// KVBuffer decode (arXiv 2605.19049, section 3): reads the state, appends one record; a row whose flag is set
// folds its fill + 1 records into the state (the caller's next fill is then 0, else fill + 1).
cudaError_t launch_linear_buffered(const LinearParams& params, cudaStream_t stream);

// Verification with stored states, the baseline of speculative decoding: reads the state, leaves it as it is
// and writes the state after each token. Takes no split states.
cudaError_t launch_linear_verify_stored(const LinearParams& params, cudaStream_t stream);

// Verification with KVBuffer (section 4): reads the state and the records, appends T records. Accepting a of
// the T tokens is a matter of the caller's cursor: fill + a. A row whose flag is set folds the fill records
// that it came with into the state; its new records count from there, so that start moves on by fill and fill
// becomes a.
cudaError_t launch_linear_verify_buffered(const LinearParams& params, cudaStream_t stream);

// Memory probes, for the roof. Sizes are multiples of 16 bytes.
struct StreamProbeParams {
    const void* source = nullptr;  // [bytes]
    void* destination = nullptr;   // [bytes]; the read probe writes one word here, and only if the data's
                                   // checksum is a value that random data does not have
    std::size_t bytes = 0;
};
cudaError_t launch_stream_copy(const StreamProbeParams& params, cudaStream_t stream);
cudaError_t launch_stream_read(const StreamProbeParams& params, cudaStream_t stream);

// Reads `bytes` as buffered decode by short blocks reads fp32 states, and writes what decode would append. A
// block of 64 threads takes 16 KiB in one go: 16 independent loads of 16 bytes a thread, four whole lines an
// access. It writes its 64 bytes of `out` and of its head's u; every eighth block writes a key.
// kernels/traffic_stream.hpp has the bytes.
struct StreamAppendParams {
    const void* source = nullptr;     // [bytes]
    std::uint32_t* out = nullptr;     // [heads, 256 bytes], heads = bytes / 64 KiB
    std::uint32_t* ring_u = nullptr;  // [heads, kAppendRecords, 256 bytes]
    std::uint32_t* ring_k = nullptr;  // [heads / 2, kAppendRecords, 256 bytes]
    std::size_t bytes = 0;            // a multiple of kAppendUnit
    int record = 0;                   // of the rings, the one that is written: 0..kAppendRecords - 1
};
cudaError_t launch_stream_append(const StreamAppendParams& params, cudaStream_t stream);

// A kernel that does nothing: the cost of a node of a CUDA graph.
cudaError_t launch_empty(cudaStream_t stream);

// stamps: [sms]. On an idle GPU every multiprocessor writes its own; one that gets no block leaves it alone.
cudaError_t launch_clock_stamp(ClockStamp* stamps, int sms, cudaStream_t stream);

}  // namespace kvsim
