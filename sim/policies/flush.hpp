// Flush policies: when the buffer of a decoding request is folded into its state.
//
// A policy keeps the books of the rows that decode on one replica, one token per row and step. All rows take
// part in every decode step; steps have consecutive numbers. A row joins with an empty buffer, because
// prefill leaves the state up to date. In each step it reads the records it has, appends one, and, if it
// flushes, has none afterwards.
//
// No policy lets a row hold more records than its ring. A flush is legal at any fill, so what policies differ
// in is when a row flushes, never what it computes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sim/cost/step_shape.hpp"
#include "sim/memory/serving_spec.hpp"

namespace kvsim {

// What a policy may look at when it decides.
struct FlushConditions {
    std::int64_t waiting = 0;  // requests in the queue
    double memory_used = 0.0;  // share of the pool that binds first
};

class FlushPolicy {
  public:
    virtual ~FlushPolicy() = default;

    // A row takes part from step `first` on, which is the next to run. Returns what leave() needs to find it
    // again.
    virtual std::int64_t join(std::int64_t first) = 0;
    // A row that joined with `first` and was given `ticket` takes no part from step `next` on; its records
    // are dropped.
    virtual void leave(std::int64_t ticket, std::int64_t first, std::int64_t next) = 0;
    // Writes what step `step` reads and flushes over all rows into the linear work of its form. Called once
    // per step, in order; no allocation.
    virtual void step(std::int64_t step, const FlushConditions& conditions, StepShape& shape) = 0;
    // Step `step` runs in another way, which leaves every state up to date: called in place of step(). All
    // buffers are empty after it, and phases go on as they were.
    virtual void fold(std::int64_t step) = 0;
    // From step `step` on, which is the next to run, the cycle is of `buffer_length` tokens, 1 <= m <= ring.
    // A row that is under way keeps its length up to its next flush, unless the policy says otherwise.
    virtual void set_length(int buffer_length, std::int64_t step) = 0;
    // Records held by all rows together.
    virtual std::int64_t buffered_tokens() const = 0;
};

// What a policy is made from. buffer_length: m, the tokens of a cycle. ring: records that a row can hold;
// 1 <= m <= ring.
struct FlushParts {
    int buffer_length = 1;
    int ring = 1;
    FlushSpec spec{};
};

// Rows with drafts append as many records as they keep, so that each is looked at by itself.
struct RowFills {
    std::span<const std::int32_t> records;    // that the row comes with
    std::span<const std::uint64_t> requests;  // their numbers, in order of arrival
    std::int32_t due = 0;                     // records from which on a row flushes under fixed_length
    std::int32_t full = 0;  // and from which on its ring has no room for another step; >= due
    int tokens = 1;         // of every row in the step
};

class RowFlushPolicy {
  public:
    virtual ~RowFlushPolicy() = default;
    // Appends the rows of `fills` that flush in the step, in any order. All that are full are among them, and
    // none without records.
    virtual void pick(const RowFills& fills, const FlushConditions& conditions,
                      std::vector<std::size_t>& rows) = 0;
};

struct FlushPolicyEntry {
    std::string_view name;
    std::string_view help;
    std::unique_ptr<FlushPolicy> (*make)(const FlushParts& parts);
    // Of rows with drafts, other than to flush whatever is due; null where there is no such thing.
    std::unique_ptr<RowFlushPolicy> (*make_with_drafts)(const FlushParts& parts) = nullptr;
};

// Every flush policy, the default first.
std::span<const FlushPolicyEntry> flush_policies();

// The policy of rows with drafts that parts.spec names; null for fixed_length: whatever is due flushes.
// Throws ConfigError when there is none: staggered sets the first phase of a row, and which drafts it keeps
// moves it from there within a few cycles.
std::unique_ptr<RowFlushPolicy> make_row_flush_policy(const FlushParts& parts);

// The one that parts.spec names. Throws ConfigError naming the choices when it is not in the table.
std::unique_ptr<FlushPolicy> make_flush_policy(const FlushParts& parts);

// A row flushes in the step that appends its m-th record: every m tokens, counted from its own prefill.
std::unique_ptr<FlushPolicy> make_fixed_length_flush(const FlushParts& parts);
// All rows flush in the same step, the last of every m of the replica. A row that joined within the cycle
// flushes early, with what it has.
std::unique_ptr<FlushPolicy> make_aligned_flush(const FlushParts& parts);
// With drafts: all rows with records flush in the step in which the first of them is due.
std::unique_ptr<RowFlushPolicy> make_aligned_row_flush(const FlushParts& parts);
// A row that joins gets the step of the cycle in which the fewest rows flush, of several the last: its first
// flush comes early, the others every m tokens.
std::unique_ptr<FlushPolicy> make_staggered_flush(const FlushParts& parts);
// A row is due from its m-th record on, but at most spec.most_per_step rows flush in a step (0: rows / m,
// rounded up, which keeps up with any batch), those first that have waited longest. A row whose ring is full
// flushes beyond that bound. A new length holds for all rows at once: the bound spreads what falls due.
std::unique_ptr<FlushPolicy> make_deferred_flush(const FlushParts& parts);
// With drafts those with the most records go first, of equals the request that came first. A bound of 0: rows
// x tokens / m, rounded up, which keeps up whatever is kept.
std::unique_ptr<RowFlushPolicy> make_deferred_row_flush(const FlushParts& parts);
// As deferred while requests wait or 90 % of memory is in use; otherwise every row that is due flushes. It
// is the loaded replica that gains from shorter steps, a flush is lost work when its row is preempted, and
// since rings are set aside whole, none of them gives memory back.
std::unique_ptr<FlushPolicy> make_deferred_under_load_flush(const FlushParts& parts);
std::unique_ptr<RowFlushPolicy> make_deferred_under_load_row_flush(const FlushParts& parts);

}  // namespace kvsim
