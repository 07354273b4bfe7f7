// Flush policies: when the buffer of a decoding request is folded into its state, and in which form its step
// runs.
//
// A policy keeps the books of the rows that decode on one replica, one token per row and step. All rows take
// part in every decode step; steps have consecutive numbers. A row joins with an empty buffer, because
// prefill leaves the state up to date. In each step it reads the records it has, appends one, and, if it
// flushes, has none afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sim/cost/step_shape.hpp"

namespace kvsim {

// What a policy may look at when it decides.
struct FlushConditions {
    std::int64_t waiting = 0;   // requests in the queue
    double memory_used = 0.0;   // share of the pool that binds first
};

class FlushPolicy {
  public:
    virtual ~FlushPolicy() = default;

    // A row takes part from step `first` on. Returns what leave() needs to find it again (its phase).
    virtual std::int64_t join(std::int64_t first) = 0;
    // A row that joined with `first` and was given `ticket` takes no part from step `next` on; its records are
    // dropped.
    virtual void leave(std::int64_t ticket, std::int64_t first, std::int64_t next) = 0;
    // Writes what step `step` reads and flushes over all rows into the linear work of its form. Called once
    // per step, in order; no allocation.
    virtual void step(std::int64_t step, const FlushConditions& conditions, StepShape& shape) = 0;
    // Records held by all rows together.
    virtual std::int64_t buffered_tokens() const = 0;
};

struct FlushPolicyEntry {
    std::string_view name;
    std::string_view help;
    std::unique_ptr<FlushPolicy> (*make)(int buffer_length);  // m >= 1
};

// Every flush policy, the default first.
std::span<const FlushPolicyEntry> flush_policies();

// A row flushes in the step that appends its m-th record: every m tokens, counted from its own prefill.
std::unique_ptr<FlushPolicy> make_fixed_length_flush(int buffer_length);

}  // namespace kvsim
