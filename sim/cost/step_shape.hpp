// The hinge between serving and cost: what one forward step holds (StepShape) and what it costs (StepPrice).
// The scheduler produces shapes, the cost model prices them; nothing else crosses.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"

namespace kvsim {

struct DecodeAttentionShape {
    std::int64_t sequences = 0;
    // Cached tokens read, summed over sequences; the step's own token is not among them.
    std::int64_t context_sum = 0;
    std::int64_t context_max = 0;
};

struct PrefillShape {
    std::int64_t sequences = 0;
    std::int64_t new_tokens = 0;
    std::int64_t cached_tokens = 0;  // earlier chunks of the same prompts
    // Causal pairs: sum of n (p + (n + 1)/2) for n new tokens after p cached.
    std::int64_t query_key_pairs = 0;
};

// Flushes beside the launches of decode rows, each by a kernel of its own: of rows that decode no more.
struct FoldShape {
    std::int64_t states = 0;   // of a request
    std::int64_t records = 0;  // that they take in, of all together
};

struct StepShape {
    std::array<LinearWork, kFormCount> linear{};  // decode rows, by form
    DecodeAttentionShape decode;
    PrefillShape prefill;
    std::int64_t logit_rows = 0;  // of the target model
    // k: after the target's forward, k drafts are proposed for every decode row by the MTP module, which also
    // takes in the tokens that the forward verified, and those of prompts. The decode rows themselves bring T
    // = new_tokens / sequences tokens each: T = 1 + k of the step before.
    int drafts = 0;
    // Prompts that end in the step, with what is cached of them then: as far as their drafts are proposed in
    // this step, like those of rows.
    DecodeAttentionShape fresh;
    std::int64_t state_copies = 0;  // of a request's state and window, to or from a snapshot
    FoldShape folds;

    LinearWork& operator[](Form f) { return linear[static_cast<std::size_t>(f)]; }
    const LinearWork& operator[](Form f) const { return linear[static_cast<std::size_t>(f)]; }
    // Tokens that pass through the projections and the FFN.
    std::int64_t tokens() const {
        std::int64_t n = prefill.new_tokens;
        for (const LinearWork& w : linear) n += w.new_tokens;
        return n;
    }
};

// Whose bytes they are. Every simulated byte has one owner, and owners sum to the total.
enum class Owner : std::uint8_t {
    kWeights,
    kKvRead,
    kKvWrite,
    kStateRead,
    kStateWrite,
    kConvRead,  // windows of the convolution
    kConvWrite,
    kBufferRead,
    kBufferWrite,
    kActivations
};
inline constexpr int kOwnerCount = 10;
inline constexpr std::array<std::string_view, kOwnerCount> kOwnerNames{
    "weights",   "kv_read",    "kv_write",    "state_read",   "state_write",
    "conv_read", "conv_write", "buffer_read", "buffer_write", "activations"};
using ByteLedger = std::array<Bytes, kOwnerCount>;

// Where a time comes from, best first.
enum class Source : std::uint8_t { kMeasured, kInterpolated, kFitted, kRoofline, kExtrapolated };
inline constexpr int kSourceCount = 5;
inline constexpr std::array<std::string_view, kSourceCount> kSourceNames{"measured", "interpolated", "fitted",
                                                                         "roofline", "extrapolated"};

struct StepPrice {
    Time time;
    ByteLedger bytes{};
    std::array<Time, kSourceCount> time_by_source{};  // sums to time
    Time linear_time;                                 // of which: decode kernels of linear attention
    Time flush_time;                                  // by which flushes make the step longer
};

}  // namespace kvsim
