// Decode rows without speculation: one token per row and step.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/policies/form.hpp"
#include "sim/serving/decode_rows.hpp"

namespace kvsim {

// All rows advance alike, so counts are enough: rows per flush phase (in the flush policy), rows per context
// modulo a page for growth, a heap of departures by step, and one of contexts of which only the top is
// looked at. A step costs the same for any number of rows; a row costs a logarithm when it joins and
// leaves. Entries of rows that have left are known by the generation of their slot, and swept when they
// outnumber the others.
//
// With a prefix cache a snapshot of a row's state is taken in the step that makes its tokens in the KV cache
// a multiple of the interval. It folds what the row has buffered: the row flushes in that step, if it does
// not anyway, and is to the flush policy one that joins anew. Rows are kept by the step of the cycle in which
// they are due, so that only those are looked at.
class CohortRows final : public DecodeRows {
  public:
    // Snapshots every `snapshot_interval` tokens; 0: none.
    CohortRows(DecodeForm form, std::int64_t page_tokens, std::int64_t snapshot_interval = 0);

    void join(const RowStart& row) override;
    std::int64_t leave(Slot slot) override;
    std::int64_t yielded(Slot slot) const override;

    std::int64_t rows() const override { return count_; }
    std::int64_t context_sum() const override { return context_sum_; }
    std::int64_t pages_needed() const override { return rows_of_phase_[full_phase_]; }
    std::int64_t buffered_tokens() const override { return form_.flush ? form_.flush->buffered_tokens() : 0; }

    void form_step(StepShape& shape, const FlushConditions& conditions) override;
    std::int64_t end_step(Time now, std::vector<TokenGap>& gaps, std::vector<Slot>& finished) override;
    std::int64_t pages_grown() const override { return grown_; }

  private:
    struct Row {
        std::int64_t first_step = 0;  // that it takes part in
        std::int64_t key = 0;         // its context before step s: key + s
        std::int64_t ticket = 0;      // of the flush policy,
        std::int64_t flush_from = 0;  // which it joined with this step
        Time last_token;              // when it joined
        std::uint32_t generation = 0;
        bool here = false;
    };
    // A row of slot and generation; of departures the step before which it has left, of contexts the key.
    struct Entry {
        std::int64_t value = 0;
        Slot slot = 0;
        std::uint32_t generation = 0;
    };
    struct Fresh {  // rows that have had no step yet, and had their token at another time than the others
        Time last_token;
        std::int64_t rows = 0;
    };

    static bool later(const Entry& a, const Entry& b);    // departures: the first in front
    static bool shorter(const Entry& a, const Entry& b);  // contexts: the longest in front
    bool stale(const Entry& entry) const { return rows_[entry.slot].generation != entry.generation; }
    template <class Order>
    void push(std::vector<Entry>& heap, const Entry& entry, Order order);
    std::size_t phase_of(std::int64_t key) const;
    void take_snapshots(StepShape& shape);
    void flush_for_snapshot(Row& row, StepShape& shape);
    void remove(Slot slot);
    void add_gaps(Time now, std::vector<TokenGap>& gaps);

    DecodeForm form_;
    std::vector<Row> rows_;  // by slot
    std::int64_t count_ = 0;
    std::int64_t context_sum_ = 0;
    std::int64_t step_ = 0;  // number of the next step
    Time last_end_;
    std::vector<std::int64_t> rows_of_phase_;  // by key modulo page
    std::size_t full_phase_ = 0;               // that of rows whose context fills its pages
    std::int64_t grown_ = 0;
    std::vector<Fresh> fresh_;
    std::vector<Entry> departures_;
    std::vector<Entry> contexts_;
    std::vector<std::vector<Entry>> snapshots_;  // rows by the step modulo the interval that takes one
};

}  // namespace kvsim
