// Gated-delta-rule layers that keep their state up to date: decode of one token, and verification of several
// that writes the state after each.
//
//   x = g S k    u = beta (v - x)    o = g S q + u (k.q)    S' = g S + u k^T
//
// with g the decay gate, so that the state is read once, for k and q together.

#include "kernels/launch_checks.hpp"
#include "kernels/linear_dispatch.hpp"
#include "kernels/linear_tile.cuh"

namespace kvsim {
namespace {

using namespace tile;

template <StateFormat kFormat>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    linear_recurrent(const __grid_constant__ LinearParams p, bool keep) {
    const Place place(p);
    const int lane = place.lane;
    // Everything that comes from memory is asked for before anything is used, and what does not need the slot
    // while that is on its way. The barriers keep compilers from moving loads.
    const int slot = load_now(p.slot + place.batch_row);
    __syncthreads();
    const TokenVectors vectors(p, place, 0);
    Columns q, k;
    load_columns<kFormat, true>(vectors.q, lane, q);
    load_columns<kFormat, true>(vectors.k, lane, k);
    const std::size_t head_index = place.head_index(p, 0);
    const __nv_bfloat16 raw_a = load_now(p.a + head_index), raw_b = load_now(p.b + head_index);
    const float a_log = load_now(p.a_log + place.value_head), bias = load_now(p.dt_bias + place.value_head);
    const __nv_bfloat16 value = load_now(vectors.v + place.own_row);
    __syncwarp();
    __nv_bfloat16* const out = p.out + place.row_index(p, place.batch_row);
    if (slot < 0) return write_zeros(out);

    // Two copies of the loads, since compilers mix others with what waits for other data.
    const StateRows<kFormat> state(p.state, p.state_low, place.row_index(p, slot), place);
    typename StateRows<kFormat>::Pieces pieces;
    if (keep) {
        state.load(pieces, evict_last());
    } else {
        state.load(pieces, evict_unchanged());
    }
    const float decay = expf(log_gate(a_log, __bfloat162float(raw_a), bias));
    const float beta = sigmoid(__bfloat162float(raw_b));
    const float v = __bfloat162float(value);
    normalise(q, rsqrtf(float(kDim)));
    normalise(k, 1.0f);
    const float kq = row_sum(dot(k, q));

    Tile s;
    StateRows<kFormat>::widen(pieces, s);
    const float own = decay * state_terms(s, k, q, lane);
    const float u = delta(own, beta, v, lane);
    if (lane % 2) out[place.own_row] = __float2bfloat16(fmaf(u, kq, own));
    advance(s, decay, u, k, lane);
    state.template store<false>(s);
}

// What a block needs of one token, in shared memory.
struct alignas(16) TokenInput {
    __nv_bfloat16 q[kDim], k[kDim], v[kRows];
    // Vectors stay as they came in; scalars make up for it.
    float decay;
    float k_scale, q_scale;  // of the products of the state with k and q: decay over the norm
    float u_scale;           // beta / |k|
    float kq;                // k q with q normalised
};

// Asks for the vectors of every token.
__device__ __forceinline__ void copy_tokens(TokenInput* tokens, const LinearParams& p, const Place& place) {
    constexpr int kVectorPieces = kDim / 8, kPieces = 2 * kVectorPieces + kRows / 8;
    const std::uint64_t policy = evict_first();
#pragma unroll 1
    for (int i = threadIdx.x; i < p.tokens * kPieces; i += kThreads) {
        const int token = i / kPieces, piece = i % kPieces;
        const TokenVectors from(p, place, token);
        TokenInput& to = tokens[token];
        if (piece < kVectorPieces) {
            copy_piece(to.q + 8 * piece, from.q + 8 * piece, policy);
        } else if (piece < 2 * kVectorPieces) {
            copy_piece(to.k + 8 * (piece - kVectorPieces), from.k + 8 * (piece - kVectorPieces), policy);
        } else {
            copy_piece(to.v + 8 * (piece - 2 * kVectorPieces), from.v + 8 * (piece - 2 * kVectorPieces),
                       policy);
        }
    }
}

// Makes the scalars of every token, eight tokens at a time: one for the eight lanes of a row.
template <StateFormat kFormat>
__device__ __forceinline__ void prepare_tokens(TokenInput* tokens, const LinearParams& p,
                                               const Place& place) {
#pragma unroll 1
    for (int first = 0; first < p.tokens; first += kThreads / kLanesPerRow) {
        const int token = min(first + int(threadIdx.x) / kLanesPerRow, p.tokens - 1);
        TokenInput& t = tokens[token];
        Columns q, k;
        load_columns<kFormat>(t.q, place.lane, q);
        load_columns<kFormat>(t.k, place.lane, k);
        const float k_scale = norm_scale(k, 1.0f), q_scale = norm_scale(q, rsqrtf(float(kDim)));
        const float kq = row_sum(dot(k, q)) * q_scale;
        if (threadIdx.x % kLanesPerRow != 0) continue;
        const std::size_t head_index = place.head_index(p, token);
        const float raw_a = __bfloat162float(p.a[head_index]);
        t.decay = expf(log_gate(p.a_log[place.value_head], raw_a, p.dt_bias[place.value_head]));
        t.u_scale = sigmoid(__bfloat162float(p.b[head_index])) * k_scale;
        t.k_scale = t.decay * k_scale;
        t.q_scale = t.decay * q_scale;
        t.kq = kq;
    }
}

template <StateFormat kFormat>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    linear_verify_stored(const __grid_constant__ LinearParams p) {
    __shared__ TokenInput tokens[kMaxTokens];
    const Place place(p);
    const int lane = place.lane;
    const int slot = p.slot[place.batch_row];
    const std::size_t first_token = std::size_t(place.batch_row) * p.tokens;
    if (slot < 0) {
        for (int token = 0; token < p.tokens; ++token)
            write_zeros(p.out + place.row_index(p, first_token + token));
        return;
    }

    copy_tokens(tokens, p, place);
    typename StateRows<kFormat>::Pieces pieces;
    StateRows<kFormat>(p.state, nullptr, place.row_index(p, slot), place).load(pieces, evict_first());
    finish_copies();
    prepare_tokens<kFormat>(tokens, p, place);
    __syncthreads();

    Tile s;
    StateRows<kFormat>::widen(pieces, s);
#pragma unroll 1
    for (int token = 0; token < p.tokens; ++token) {
        const TokenInput& t = tokens[token];
        Columns q, k;
        load_columns<kFormat>(t.q, lane, q);
        load_columns<kFormat>(t.k, lane, k);
        const float own = (lane % 2 ? t.q_scale : t.k_scale) * state_terms(s, k, q, lane);
        const float u = delta(own, t.u_scale, __bfloat162float(t.v[place.own_row]), lane);
        const std::size_t row = place.row_index(p, first_token + token);
        if (lane % 2) p.out[row + place.own_row] = __float2bfloat16(fmaf(u, t.kq, own));
        advance(s, t.decay, u, k, lane);
        StateRows<kFormat>(p.token_states, nullptr, row, place).template store<true>(s);
    }
}

dim3 grid_of(const LinearParams& p) {
    return {unsigned(p.shape.v_heads / p.shape.k_heads * kBlocksPerHead), unsigned(p.shape.k_heads),
            unsigned(p.batch)};
}

}  // namespace

cudaError_t launch_linear_recurrent(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || params.tokens != 1) return cudaErrorInvalidValue;
    const bool keep = state_bytes(params.shape, params.batch) >= kKeepFromBytes;
    const dim3 grid = grid_of(params);
    switch (params.shape.state) {
        case StateFormat::kFp32:
            linear_recurrent<StateFormat::kFp32><<<grid, kThreads, 0, stream>>>(params, keep);
            break;
        case StateFormat::kBf16:
            linear_recurrent<StateFormat::kBf16><<<grid, kThreads, 0, stream>>>(params, keep);
            break;
        case StateFormat::kSplit:
            linear_recurrent<StateFormat::kSplit><<<grid, kThreads, 0, stream>>>(params, keep);
            break;
        default:
            return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

cudaError_t launch_linear_verify_stored(const LinearParams& params, cudaStream_t stream) {
    if (!has_valid_inputs(params) || !is_aligned(params.token_states, 16)) return cudaErrorInvalidValue;
    const dim3 grid = grid_of(params);
    switch (params.shape.state) {
        case StateFormat::kFp32:
            linear_verify_stored<StateFormat::kFp32><<<grid, kThreads, 0, stream>>>(params);
            break;
        case StateFormat::kBf16:
            linear_verify_stored<StateFormat::kBf16><<<grid, kThreads, 0, stream>>>(params);
            break;
        default:
            return cudaErrorInvalidValue;  // of the split format, states of tokens have no layout
    }
    return cudaGetLastError();
}

}  // namespace kvsim
