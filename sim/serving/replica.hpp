// One replica of a serving engine: its queue, its memory, and the next step that it would run.
//
// Continuous batching as in SGLang. Prefill goes first: while a prompt is partly prefilled or the head of the
// queue fits, the next step is a prefill of at most `chunked_prefill_tokens` tokens, of several prompts if
// they are short; a prompt may span steps. Otherwise every request whose prefill is complete decodes one
// token. The step that completes a prefill yields the first token. Admission is first come, first served.
//
// Admission reserves prompt + declared output tokens of KV cache, and the state slots, until the request
// ends. So nothing is ever preempted. The declared output is the true one, as serving benchmarks declare it
// (ignore_eos with max_tokens).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "sim/cost/step_shape.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/policies/form.hpp"
#include "sim/serving/step_totals.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

// What a replica can hold and do at once.
struct ReplicaLimits {
    std::int64_t max_running = 0;  // requests admitted at once
    std::int64_t state_slots = 0;
    std::int64_t slots_per_request = 1;  // q
    std::int64_t kv_tokens = 0;
    std::int64_t chunked_prefill_tokens = 0;  // of one prefill step, >= 1
};

enum class RequestState : std::uint8_t { kExpected, kRejected, kQueued, kPrefilling, kDecoding, kCompleted };

// What became of a request; a time is valid once the state has been reached.
struct RequestRecord {
    RequestState state = RequestState::kExpected;
    Time admitted;
    Time first_token;
    Time finished;
    std::int64_t first_step = 0;  // decode step that yields the second token
};

class Replica {
  public:
    // `arrivals` outlives the replica; a request is its index there.
    Replica(std::span<const Arrival> arrivals, const ReplicaLimits& limits, DecodeForm form);

    // A request arrives: queued, or rejected with the limit that it can never meet.
    std::optional<Limit> arrive(std::size_t request);
    // Admits what fits and forms the next step; null when there is nothing to do. Valid until the next call.
    const StepShape* begin_step(Time now);
    // The step that was begun has ended: tokens come out, requests finish.
    void end_step(Time now, StepTotals& totals);

    const std::vector<RequestRecord>& records() const { return records_; }
    std::int64_t running() const { return running_; }  // admitted and not finished
    std::int64_t in_system() const {
        return running_ + static_cast<std::int64_t>(queue_.size() - queue_head_);
    }
    // Output tokens so far of a request, from its record.
    std::int64_t tokens_of(std::size_t request) const;

  private:
    // Tokens of one prompt in a prefill step.
    struct Chunk {
        std::size_t request = 0;
        std::int64_t cached = 0;
        std::int64_t tokens = 0;
    };
    struct Departure {  // after the step before `step`; of equal steps the lower request first
        std::int64_t step = 0;
        std::size_t request = 0;
        friend auto operator<=>(const Departure&, const Departure&) = default;
    };
    struct Longest {  // context of a row before step s: key + s; gone from step `until` on
        std::int64_t key = 0;
        std::int64_t until = 0;
        friend auto operator<=>(const Longest&, const Longest&) = default;
    };
    struct Fresh {  // rows that have had their first token and not yet a step
        Time first_token;
        std::int64_t rows = 0;
    };

    std::int64_t reservation(std::size_t request) const;
    bool head_fits() const;
    void admit(std::size_t request, Time now);
    void add_chunk(Chunk chunk);
    void form_prefill(Time now);
    void form_decode();
    void end_prefill(Time now, StepTotals& totals);
    void end_decode(Time now, StepTotals& totals);
    void join(std::size_t request);
    void finish(std::size_t request, Time now);
    // Invariants 2 to 4: slots, KV tokens and records belong to admitted requests, and none is left without
    // them.
    void check_books() const;

    std::span<const Arrival> arrivals_;
    ReplicaLimits limits_;
    DecodeForm form_;
    std::vector<RequestRecord> records_;

    std::vector<std::size_t> queue_;  // in order of arrival; those before queue_head_ have been admitted
    std::size_t queue_head_ = 0;
    std::int64_t running_ = 0;
    std::int64_t slots_used_ = 0;
    std::int64_t kv_reserved_ = 0;

    StepShape shape_;
    bool in_step_ = false;
    std::vector<Chunk> chunks_;     // of the step; empty for a decode step
    std::optional<Chunk> partial_;  // the prompt that is partly prefilled, with what is cached; tokens 0

    std::int64_t decode_step_ = 0;  // number of the next decode step
    Time last_decode_end_;
    std::int64_t rows_ = 0;         // requests that decode
    std::int64_t context_sum_ = 0;  // cached tokens of these before the next step
    std::vector<Fresh> fresh_;
    std::priority_queue<Departure, std::vector<Departure>, std::greater<>> departures_;
    std::priority_queue<Longest> longest_;
};

}  // namespace kvsim
