// One replica of a serving engine: its queue, its memory, and the next step that it would run.
//
// Continuous batching. prefill_first (SGLang): while a prompt is partly prefilled or the head of the queue is
// admitted, the next step is prefill, of at most `step_tokens` tokens; otherwise all rows decode. mixed
// (vLLM): a step decodes all rows, and fills up `step_tokens` with prefill. In both, the partly prefilled
// prompt (there is one at most) goes before new ones, several short prompts share a step, and the step that
// completes a prompt yields a token.
//
// Preemption is by recompute: the victim keeps the tokens that it has had, and they are prefilled again with
// its prompt; the step that completes them yields the next token. A step that has preempted admits nobody.
// With a prefix cache it may leave its KV pages and its state there, brought up to date by a flush: what is
// left of these when it is admitted again need not be computed.
//
// With drafts the MTP module takes in what is prefilled. A prompt that ends has its drafts after its step, as
// many as the rows: mixed steps (vLLM) propose them for all together at their end; prefill_first (SGLang)
// proposes those of all rows when they decode next, which counts in that step.
//
// Prefix cache. A request that is admitted starts from the longest prefix that the cache has a state for, but
// always computes its last token. Snapshots are taken of the state at the last multiple of the interval that
// a chunk gets to, and where the prompt leaves the pages that are cached, if there is no state yet (SGLang:
// mamba_branching_seqlen). A chunk that does not end its prompt ends at such a multiple, if it gets to one,
// and nothing follows it in its step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/cost/step_shape.hpp"
#include "sim/memory/pool.hpp"
#include "sim/memory/prefix_cache.hpp"
#include "sim/memory/serving_spec.hpp"
#include "sim/results/collector.hpp"
#include "sim/serving/admission.hpp"
#include "sim/serving/decode_rows.hpp"
#include "sim/serving/request_table.hpp"
#include "sim/serving/waiting_queue.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

// What a replica can hold and do at once.
struct ReplicaSpec {
    std::int64_t max_running = 0;  // requests admitted at once
    std::int64_t step_tokens = 0;  // of a prefill step, or of a mixed one with its decode rows; >= 1
    std::int64_t drafts = 0;       // most that a decode step verifies per row
    PoolSize pool;
    SchedulerSpec scheduler;
    std::optional<PrefixCacheSpec> prefix_cache{};
};

// Hashes of the blocks of a prompt, where the workload has them.
struct PromptBlocks {
    std::span<const std::uint64_t> hashes{};
    std::int64_t tokens = 0;  // of a block
};

class Replica {
  public:
    // `collector` outlives the replica.
    Replica(const ReplicaSpec& spec, std::unique_ptr<DecodeRows> rows, Collector& collector);

    // The limit that the request can never meet, if any: then it must not arrive.
    std::optional<Limit> refuses(const Arrival& arrival) const;
    void arrive(RequestNumber number, const Arrival& arrival, const PromptBlocks& blocks = {});

    // Admits, preempts and forms the next step; null when there is nothing to do. Valid until the next call.
    const StepShape* begin_step(Time now);
    // The step that was begun has ended: tokens come out. Returns how many requests have left.
    std::int64_t end_step(Time now, const StepPrice& price);

    std::int64_t in_system() const { return table_.size(); }
    std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }

    // Sums over all requests that were ever here, for invariants 8 and 9. `sojourns` in picoseconds modulo
    // 2^64; those who are here leave at `end`.
    std::uint64_t sojourns(Time end) const;
    std::int64_t tokens_received() const;
    // Of the prefix cache, if there is one.
    std::optional<PrefixCounts> prefix_counts() const;

  private:
    // Tokens of one prompt in the step.
    struct Chunk {
        Slot slot = 0;
        std::int64_t tokens = 0;
        // Tokens of the prompt after which snapshots are taken, in ascending order; 0: none.
        std::int64_t branch = 0;
        std::int64_t snapshot = 0;
    };

    // By a request that gives way: tokens in the KV cache, and those of them that its state lacks.
    struct Computed {
        std::int64_t tokens = 0;
        std::int64_t records = 0;
    };

    AdmissionRequest asks(Slot slot);
    bool head_is_admitted();
    void admit(Slot slot, Time now);
    void form_prefill(Time now, bool admits);
    std::int64_t take_chunk(Slot slot, std::int64_t budget);  // what it leaves of the budget
    std::int64_t chunk_tokens(const InFlight& request, std::int64_t budget) const;
    std::int64_t most_chunks(std::int64_t tokens) const;
    void plan_snapshots(Chunk& chunk);
    void cache_prefix(const Chunk& chunk);
    void release(Slot slot, std::int64_t pages);
    void form_decode();
    bool make_room(Time now);  // true if somebody had to give way
    Slot victim() const;
    void preempt(Slot slot, Time now);
    std::int64_t generated(Slot slot) const;

    void run_clocks(const StepPrice& price);
    std::int64_t end_decode(Time now);
    std::int64_t end_prefill(Time now);
    void first_token_or_next(Slot slot, Time now);
    void join(Slot slot, Time now);
    void give_way(Slot slot, std::int64_t pages, const Computed& computed);
    void stop_running(Slot slot);
    void finish(Slot slot, Time now);
    void report(std::int64_t tokens, Time now);
    void check_books(std::int64_t tokens);

    ReplicaSpec spec_;
    MemoryPool pool_;
    Admission admission_;
    std::optional<PrefixCache> cache_;
    std::unique_ptr<DecodeRows> rows_;
    Collector& collector_;
    RequestTable table_;
    WaitingQueue queue_;
    std::vector<Slot> running_;
    std::uint64_t admissions_ = 0;

    StepShape shape_;
    bool in_step_ = false;
    bool decodes_ = false;         // the step holds decode rows
    std::int64_t pages_lent_ = 0;  // to the step's decode rows
    std::vector<Chunk> chunks_;
    std::optional<Slot> partial_;  // the prompt that is partly prefilled
    std::vector<TokenGap> gaps_;
    std::vector<Slot> finished_;

    Time prefill_clock_;  // time that decoding rows have lost to prefill so far
    Time flush_clock_;    // and to flushes
    Time decode_end_;     // of the latest step with decode rows

    std::uint64_t past_sojourns_ = 0;  // of those who have left
    std::uint64_t arrivals_sum_ = 0;   // arrival times of those who are here
    std::int64_t past_tokens_ = 0;
    std::int64_t waiting_tokens_ = 0;  // had by those who wait after a preemption
    std::int64_t longest_ = 1;         // most tokens that any request had to prefill
    std::int64_t idle_steps_ = 0;      // steps since a token came out
};

}  // namespace kvsim
