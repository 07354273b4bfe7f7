// What the oracle's requests do when they decode, one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/policies/speculation.hpp"
#include "tests/sim/serving/oracle.hpp"
#include "tests/sim/serving/oracle_cache.hpp"

namespace kvsim {

struct OracleRequest {
    std::size_t id = 0;
    Arrival arrival;
    std::int64_t declared = 0;
    std::int64_t generated = 0;
    std::int64_t target = 0;  // to prefill
    std::int64_t prefilled = 0;
    std::int64_t chunk = 0;    // tokens of its prompt in the step under way
    std::int64_t context = 0;  // of a decoding request: cached tokens
    std::int64_t fill = 0;     // records in its buffer
    std::uint64_t admission = 0;
    bool decoding = false;
    bool snapshot = false;  // of its state in the next step
    bool flushes = false;   // in the step under way
    Time admitted, first_token, last_token, out_since;
    Time interference, preempted, flush;

    std::int64_t length() const { return arrival.prompt_tokens + declared; }
    std::int64_t left() const { return declared - generated; }
};

inline std::int64_t oracle_ceil(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// What a row does with its tokens and records, from the contract of the kernels alone.
class OracleRows {
  public:
    explicit OracleRows(const OracleSpec& spec)
        : spec_(spec),
          most_tokens_(1 + spec.speculation.most_drafts()),
          buffered_(spec.linear.form == Form::kBuffered &&
                    (spec.linear.buffer_length > 1 || most_tokens_ > 1)),
          draws_(stream_seed(spec.seed, "acceptance")) {
        if (spec.replica.prefix_cache)
            interval_ = OracleCache(*spec.replica.prefix_cache, spec.replica.pool).interval();
        if (most_tokens_ > 1) acceptance_.emplace(spec.speculation.acceptance);
        // Records with which a row may come: the buffer's, if the ring has room for the tokens beside them.
        most_records_ = std::max<std::int64_t>(spec.linear.buffer_length, most_tokens_);
        std::int64_t ring = std::max<std::int64_t>(spec.linear.ring, most_records_);
        if (most_tokens_ > 1 && spec.draft_records == DraftRecords::kWithin)
            ring = std::max(ring, 2 * most_tokens_) - most_tokens_;
        most_records_ = std::min(most_records_, ring);
        most_in_ring_ = ring;
    }

    int drafts_for(std::int64_t rows) const {
        int drafts = spec_.speculation.table.empty() ? spec_.speculation.most_drafts() : 0;
        for (const auto& [batch, k] : spec_.speculation.table) drafts = batch <= rows ? k : drafts;
        return drafts;
    }
    Form form(std::int64_t tokens) const {
        if (tokens > 1) return buffered_ ? Form::kVerifyBuffered : Form::kVerifyStored;
        return buffered_ ? Form::kBuffered : Form::kRecurrent;
    }
    // Without drafts the step takes a snapshot that makes the tokens in the cache a multiple of the interval;
    // with them, one after the step that did.
    bool takes_snapshot(const OracleRequest& r) const {
        if (interval_ == 0) return false;
        return most_tokens_ > 1 ? r.snapshot : (r.context + 1) % interval_ == 0;
    }
    // Notes which of the rows flush in a step.
    void decide_flushes(std::vector<OracleRequest>& running, std::int64_t tokens, bool loaded) const {
        if (!buffered_) return;
        std::vector<OracleRequest*> rows;
        for (OracleRequest& r : running) {
            if (r.decoding) rows.push_back(&r);
        }
        const auto reaches = [&](const OracleRequest* r, std::int64_t most) {
            return tokens == 1 ? r->fill + 1 >= most : r->fill + tokens > most;
        };
        const std::string& policy = spec_.linear.flush.policy;
        bool any = false;
        for (OracleRequest* r : rows) any |= r->flushes = reaches(r, most_records_);
        if (policy == "aligned" && any) {
            for (OracleRequest* r : rows) r->flushes = r->fill > 0;
        }
        if (policy == "deferred" || (policy == "deferred_under_load" && loaded)) {
            std::ranges::sort(rows, [](const OracleRequest* a, const OracleRequest* b) {
                return a->fill != b->fill ? a->fill > b->fill : a->id < b->id;
            });
            std::int64_t bound = spec_.linear.flush.most_per_step;
            if (bound == 0)
                bound =
                    oracle_ceil(static_cast<std::int64_t>(rows.size()) * tokens, spec_.linear.buffer_length);
            for (OracleRequest* r : rows) r->flushes &= bound-- > 0 || reaches(r, most_in_ring_);
        }
        for (OracleRequest* r : rows) r->flushes |= takes_snapshot(*r) && (most_tokens_ == 1 || r->fill > 0);
    }
    std::int64_t folded(const OracleRequest& r, std::int64_t tokens) const {
        return tokens == 1 ? r.fill + 1 : r.fill;
    }
    // Of the step's tokens, those that the request keeps.
    std::int64_t yield(const OracleRequest& r, std::int64_t tokens) const {
        if (tokens == 1) return 1;
        const std::uint64_t stream = numbered_bits(draws_, r.id + 1);
        const std::int32_t uniform =
            Acceptance::uniform(numbered_bits(stream, static_cast<std::uint64_t>(r.context)));
        const std::int64_t kept = acceptance_->draw(static_cast<int>(tokens) - 1, r.context, uniform);
        return std::min(kept + 1, r.arrival.output_tokens - r.generated);
    }
    void advance(OracleRequest& r, std::int64_t tokens, std::int64_t kept) const {
        const bool flushed = r.flushes;
        if (buffered_) r.fill = (flushed ? 0 : r.fill) + (flushed && tokens == 1 ? 0 : kept);
        r.snapshot = interval_ > 0 && (r.context + kept) / interval_ > r.context / interval_;
        r.context += kept;
    }

  private:
    const OracleSpec& spec_;
    std::int64_t most_tokens_;
    bool buffered_;
    std::int64_t interval_ = 0;  // of snapshots; 0: none
    std::uint64_t draws_;
    std::optional<Acceptance> acceptance_;
    std::int64_t most_records_ = 0;  // with which a row comes
    std::int64_t most_in_ring_ = 0;  // where its flush is put off
};

}  // namespace kvsim
