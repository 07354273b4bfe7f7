// Decode rows that speculate: each draws how many of its drafts are kept and is followed by itself.
//
// Every row verifies T tokens in a step: its latest one and the k drafts that were proposed for it before.
// The policy chooses k when a step is formed, for the drafts that this step proposes after its forward; the
// next one verifies them, T = 1 + k. A row that joins has its drafts from the step that completed its
// prefill, as many as the others have. Before the first step k is what the policy chooses for one row; while
// there are no rows it stays.
//
// A row keeps a of its drafts and yields min(a + 1, remaining) tokens, which its context grows by; the KV
// entries of rejected drafts are given back at the end of the step. A step with T = 1 is plain decode, in the
// form kRecurrent or kBuffered.
//
// With a prefix cache the step after one that has brought a row to a multiple of the interval, or past it,
// takes a snapshot of its state: with a buffer the row flushes in that step, and the snapshot is of the token
// that the row came with (and of the step's own where T = 1, which folds it too). SGLang takes it at the
// multiple, from the states that its verification stores; records are folded all or not at all.
//
// Draws hang on (seed, request, context) alone: whatever the batch, the policy or the replica, and also after
// a preemption, a request at a context keeps the same drafts.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "sim/memory/capacity.hpp"
#include "sim/serving/decode_rows.hpp"
#include "sim/serving/pricer.hpp"

namespace kvsim {

// Context and answer of a row, at most.
inline constexpr std::int64_t kMostRowTokens = std::numeric_limits<std::int32_t>::max();

struct SampledRowsParts {
    SpeculationSpec speculation;
    LinearServing linear;  // drafts == speculation.most_drafts()
    DraftRecords draft_records = DraftRecords::kWithin;
    int page_tokens = 1;                 // of a KV page
    std::uint64_t seed = 1;              // of the run
    const StepPricer* pricer = nullptr;  // for policies that ask for times; outlives the rows
    std::int64_t snapshot_interval = 0;  // tokens between snapshots in decode; 0: none
};

// Throws ConfigError: a form that cannot verify (direct), a form or length to be chosen, a flush policy that
// rows with drafts do not have (make_row_flush_policy), a speculation that lacks what its policy needs.
//
// fixed_length with drafts: a row flushes when its own records demand it (sim/serving/ring_rule.hpp).
std::unique_ptr<DecodeRows> make_sampled_rows(const SampledRowsParts& parts);

}  // namespace kvsim
