#include "sim/serving/cohort_rows.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/check.hpp"

namespace kvsim {

namespace {

// From 0 up, of numbers below 0 too.
std::size_t remainder(std::int64_t value, std::size_t of) {
    const auto divisor = static_cast<std::int64_t>(of);
    const std::int64_t rest = value % divisor;
    return static_cast<std::size_t>(rest < 0 ? rest + divisor : rest);
}

}  // namespace

CohortRows::CohortRows(DecodeForm form, std::int64_t page_tokens, std::int64_t snapshot_interval)
    : form_(std::move(form)) {
    KVSIM_CHECK(page_tokens >= 1 && snapshot_interval >= 0, "pages of {} tokens, snapshots every {}",
                page_tokens, snapshot_interval);
    snapshots_.resize(static_cast<std::size_t>(snapshot_interval));
    rows_of_phase_.resize(static_cast<std::size_t>(page_tokens), 0);
}

bool CohortRows::later(const Entry& a, const Entry& b) {
    return a.value != b.value ? a.value > b.value : a.slot > b.slot;
}

bool CohortRows::shorter(const Entry& a, const Entry& b) {
    return a.value < b.value;
}

template <class Order>
void CohortRows::push(std::vector<Entry>& heap, const Entry& entry, Order order) {
    constexpr std::size_t kFewEntries = 64;
    if (heap.size() > 2 * static_cast<std::size_t>(count_) + kFewEntries) {
        std::erase_if(heap, [this](const Entry& e) { return stale(e); });
        std::make_heap(heap.begin(), heap.end(), order);
    }
    heap.push_back(entry);
    std::push_heap(heap.begin(), heap.end(), order);
}

std::size_t CohortRows::phase_of(std::int64_t key) const {
    return remainder(key, rows_of_phase_.size());
}

void CohortRows::join(const RowStart& start) {
    KVSIM_CHECK(start.context >= 1 && start.remaining >= 1, "a row of {} tokens with {} to come",
                start.context, start.remaining);
    if (start.slot >= rows_.size()) rows_.resize(start.slot + 1);
    Row& row = rows_[start.slot];
    KVSIM_CHECK(!row.here, "slot {} has a row", start.slot);
    row.here = true;
    row.first_step = step_;
    row.key = start.context - step_;
    row.last_token = start.last_token;
    row.ticket = form_.flush ? form_.flush->join(step_) : 0;
    row.flush_from = step_;
    ++count_;
    context_sum_ += start.context;
    ++rows_of_phase_[phase_of(row.key)];
    push(departures_, {step_ + start.remaining, start.slot, row.generation}, later);
    push(contexts_, {row.key, start.slot, row.generation}, shorter);
    // Before step s it has key + s tokens, and one more after it.
    if (!snapshots_.empty())
        snapshots_[remainder(-row.key - 1, snapshots_.size())].push_back({0, start.slot, row.generation});
    if (start.last_token == last_end_) return;
    if (fresh_.empty() || fresh_.back().last_token != start.last_token)
        fresh_.push_back({start.last_token, 0});
    ++fresh_.back().rows;
}

std::int64_t CohortRows::yielded(Slot slot) const {
    return step_ - rows_[slot].first_step;
}

std::int64_t CohortRows::leave(Slot slot) {
    const Row& row = rows_[slot];
    KVSIM_CHECK(row.here, "slot {} has no row", slot);
    if (row.first_step == step_ && row.last_token != last_end_) {
        const auto fresh = std::find_if(fresh_.begin(), fresh_.end(),
                                        [&](const Fresh& f) { return f.last_token == row.last_token; });
        KVSIM_CHECK(fresh != fresh_.end() && fresh->rows > 0, "slot {} has no fresh row", slot);
        --fresh->rows;
    }
    const std::int64_t tokens = yielded(slot);
    remove(slot);
    return tokens;
}

void CohortRows::remove(Slot slot) {
    Row& row = rows_[slot];
    if (form_.flush) form_.flush->leave(row.ticket, row.flush_from, step_);
    --count_;
    context_sum_ -= row.key + step_;
    --rows_of_phase_[phase_of(row.key)];
    row.here = false;
    ++row.generation;
}

void CohortRows::form_step(StepShape& shape, const FlushConditions& conditions) {
    if (form_.flush) {
        form_.flush->step(step_, conditions, shape);
        std::int64_t sequences = 0;  // in whichever form
        for (const LinearWork& work : shape.linear) sequences += work.sequences;
        KVSIM_CHECK(sequences == count_, "the flush policy counts {} of {} rows", sequences, count_);
    } else {
        LinearWork& work = shape[form_.form];
        work.sequences = count_;
        work.new_tokens = count_;
    }
    if (!snapshots_.empty()) take_snapshots(shape);
    while (stale(contexts_.front())) {
        std::pop_heap(contexts_.begin(), contexts_.end(), shorter);
        contexts_.pop_back();
    }
    shape.decode = {count_, context_sum_, contexts_.front().value + step_};
    shape.logit_rows += count_;
    grown_ = pages_needed();
}

void CohortRows::take_snapshots(StepShape& shape) {
    std::vector<Entry>& due = snapshots_[remainder(step_, snapshots_.size())];
    std::erase_if(due, [this](const Entry& e) { return stale(e); });
    shape.state_copies += static_cast<std::int64_t>(due.size());
    if (!form_.flush) return;
    for (const Entry& entry : due) flush_for_snapshot(rows_[entry.slot], shape);
}

// The policy has just counted the row as one of the step's, so that the records that it drops with the row
// are those that are left after the step: none if the row has flushed in it.
void CohortRows::flush_for_snapshot(Row& row, StepShape& shape) {
    const std::int64_t before = form_.flush->buffered_tokens();
    form_.flush->leave(row.ticket, row.flush_from, step_ + 1);
    const std::int64_t records = before - form_.flush->buffered_tokens();
    row.flush_from = step_ + 1;
    row.ticket = form_.flush->join(row.flush_from);
    if (records == 0) return;
    LinearWork& work = shape[form_.form];
    ++work.flushes;
    work.flushed_tokens += records;
}

void CohortRows::add_gaps(Time now, std::vector<TokenGap>& gaps) {
    std::int64_t others = count_;
    for (const Fresh& fresh : fresh_) {
        if (fresh.rows > 0) gaps.push_back({now - fresh.last_token, fresh.rows, fresh.rows});
        others -= fresh.rows;
    }
    if (others > 0) gaps.push_back({now - last_end_, others, others});
    fresh_.clear();
}

std::int64_t CohortRows::end_step(Time now, std::vector<TokenGap>& gaps, std::vector<Slot>& finished) {
    const std::int64_t tokens = count_;
    add_gaps(now, gaps);
    last_end_ = now;
    ++step_;
    context_sum_ += count_;
    full_phase_ = full_phase_ == 0 ? rows_of_phase_.size() - 1 : full_phase_ - 1;
    while (!departures_.empty() && departures_.front().value <= step_) {
        const Entry entry = departures_.front();
        std::pop_heap(departures_.begin(), departures_.end(), later);
        departures_.pop_back();
        if (stale(entry)) continue;
        finished.push_back(entry.slot);
        remove(entry.slot);
    }
    return tokens;
}

}  // namespace kvsim
