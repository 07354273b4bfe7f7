// Admission: whether the request at the head of the queue may start, and what it holds from then on.
#pragma once

#include <cstdint>

#include "sim/memory/pool.hpp"
#include "sim/memory/serving_spec.hpp"

namespace kvsim {

// Of a request that asks: tokens in the KV cache before it decodes (prompt, and after a preemption what it
// had generated), and the most output tokens that it may still yield.
struct AdmissionRequest {
    std::int64_t prefill = 0;
    std::int64_t left = 0;
    std::int64_t shared_pages = 0;  // of a prefix, held by running requests already
};

// The estimated rule follows SGLang (managers/schedule_policy.py, PrefillAdder; managers/scheduler.py,
// new_token_ratio): a request that decodes counts with a share of what it may still yield, one that is being
// prefilled or asks, with all of it. The share decays linearly with decode steps, and starts again after a
// preemption and when the replica runs empty. SGLang's cut of a single answer at 4096 tokens is left out.
class Admission {
  public:
    // `drafts`: tokens that a decode step may write beyond the answer.
    Admission(const SchedulerSpec& scheduler, std::int64_t drafts);

    // Most tokens that a request ever has in the KV cache.
    std::int64_t most_tokens(const AdmissionRequest& request) const {
        return request.prefill + request.left + drafts_;
    }
    // Pages that it holds from admission on, shared ones included; later ones are taken as it decodes, if
    // grows().
    std::int64_t pages(const MemoryPool& pool, const AdmissionRequest& request) const {
        return pool.pages(grows() ? request.prefill : most_tokens(request));
    }
    bool grows() const { return scheduler_.admission != AdmissionRule::kDeclared; }
    // What is set aside for others never keeps out a request that would have all memory to itself.
    bool admits(const MemoryPool& pool, const AdmissionRequest& request) const;

    void admitted(std::int64_t left) { prefilling_left_ += left; }
    void prefilled(std::int64_t left) {  // and may yield as many tokens beside the first
        prefilling_left_ -= left + 1;
        decoding_left_ += left;
    }
    void yielded(std::int64_t tokens) { decoding_left_ -= tokens; }
    void left_prefill(std::int64_t left) { prefilling_left_ -= left; }
    void left_decode(std::int64_t left) { decoding_left_ -= left; }

    void decode_step_ended() { ++steps_; }
    void start_again() { steps_ = 0; }  // after a preemption, or when idle
    double new_token_ratio() const;

  private:
    SchedulerSpec scheduler_;
    std::int64_t drafts_ = 0;
    std::int64_t prefilling_left_ = 0;  // output tokens still to come, declared, of requests in prefill
    std::int64_t decoding_left_ = 0;    // and of those that decode
    std::int64_t steps_ = 0;            // decode steps since the ratio was at its first value
};

}  // namespace kvsim
