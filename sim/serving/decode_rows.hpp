// The rows that decode on one replica: what their next step holds, and what it yields.
//
// Two ways to keep them. Without speculation every row yields one token per step, so counts per phase are
// enough and a step costs the same for any number of rows (CohortRows). With speculation each row draws how
// many drafts it keeps, and is followed by itself (SampledRows).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/policies/flush.hpp"

namespace kvsim {

// A request on its replica: an index that is used again when the request has left.
using Slot = std::uint32_t;

struct RowStart {
    Slot slot = 0;
    std::int64_t context = 0;    // tokens in the KV cache, >= 1
    std::int64_t remaining = 0;  // output tokens still to come, >= 1
    Time last_token{};           // when it had its latest token
    std::uint64_t request = 0;   // its number in the run, on whatever replica: what its random draws hang on
};

// `count` gaps of the same length between successive deliveries to one row; `tokens` were delivered in all of
// them together (== count without speculation).
struct TokenGap {
    Time gap;
    std::int64_t count = 0;
    std::int64_t tokens = 0;
};

class DecodeRows {
  public:
    virtual ~DecodeRows() = default;

    virtual void join(const RowStart& row) = 0;
    // A row is taken out before it has finished (preemption, end of a run): the output tokens that it has
    // yielded since it joined.
    virtual std::int64_t leave(Slot slot) = 0;
    virtual std::int64_t yielded(Slot slot) const = 0;

    virtual std::int64_t rows() const = 0;
    // Tokens in the KV cache of all rows, and the most that the next step can add to it.
    virtual std::int64_t context_sum() const = 0;
    // KV pages that the next step may need beyond those that rows hold: a row holds
    // ceil((context + tokens of the step) / page) pages while it takes part in one.
    virtual std::int64_t pages_needed() const = 0;
    virtual std::int64_t buffered_tokens() const = 0;
    // Drafts that a row has which joins now.
    virtual int drafts() const { return 0; }

    // Adds the decode rows of the next step to `shape`: linear work, decode attention, logit rows, drafts.
    // Requires rows() > 0. Fixes what end_step() will do.
    virtual void form_step(StepShape& shape, const FlushConditions& conditions) = 0;
    // That step has ended: tokens come out. Appends gaps to `gaps` and finished rows, which have left, to
    // `finished`, in ascending order of slot; returns the tokens yielded.
    virtual std::int64_t end_step(Time now, std::vector<TokenGap>& gaps, std::vector<Slot>& finished) = 0;
    // KV pages that rows hold beyond what form_step() found, after end_step(): drafts that were rejected give
    // pages back, so it may be negative.
    virtual std::int64_t pages_grown() const = 0;
};

}  // namespace kvsim
