// Bytes and FLOPs of attention over a bf16 KV cache, per layer. Queries may carry a gate of their own size
// (Qwen3-Next, Qwen3.5), which passes by the attention kernel.
#pragma once

#include <cstdint>

namespace kvsim {

struct AttentionShape {  // heads of one rank
    int q_heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    // Latent attention with absorbed projections: a token is cached as one vector, which is its key, and the
    // first so many values of which are its value too. head_dim is half of the vector, as of a K and a V.
    int latent = 0;

    friend constexpr bool operator==(const AttentionShape& a, const AttentionShape& b) {
        return a.q_heads == b.q_heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
               a.latent == b.latent;
    }
};

struct AttentionTraffic {
    std::int64_t kv_read = 0;
    std::int64_t kv_write = 0;
    std::int64_t activations = 0;  // queries in, outputs out
    std::int64_t flops = 0;

    constexpr std::int64_t total() const { return kv_read + kv_write + activations; }
};

// K and V of one token.
constexpr std::int64_t kv_token_bytes(const AttentionShape& s) {
    return 4LL * s.kv_heads * s.head_dim;
}

// Appends the K and V of `tokens` new tokens to the cache.
constexpr AttentionTraffic kv_store_traffic(const AttentionShape& s, std::int64_t tokens) {
    return {0, tokens * kv_token_bytes(s), tokens * kv_token_bytes(s), 0};
}

// One query per sequence against `context_sum` cached tokens (summed over sequences) and its own, just
// stored. q k^T and p v: 4 d FLOP per query head and key; of a latent 2 (2 d + latent).
constexpr AttentionTraffic attention_decode_traffic(const AttentionShape& s, std::int64_t sequences,
                                                    std::int64_t context_sum) {
    const std::int64_t keys = context_sum + sequences;
    const std::int64_t widths = std::int64_t{s.q_heads} * (4LL * s.head_dim + 2LL * s.latent);
    return {keys * kv_token_bytes(s), 0, sequences * widths, keys * widths};
}

// Causal prefill of `new_tokens` after `cached_tokens`; `pairs` query-key pairs are computed. Each key is
// read once per launch: the reuse over query tiles is the L2's.
constexpr AttentionTraffic attention_prefill_traffic(const AttentionShape& s, std::int64_t new_tokens,
                                                     std::int64_t cached_tokens, std::int64_t pairs) {
    const std::int64_t query_width = std::int64_t{s.q_heads} * s.head_dim;
    return {(new_tokens + cached_tokens) * kv_token_bytes(s), 0, 4 * new_tokens * query_width,
            4 * query_width * pairs};
}

}  // namespace kvsim
