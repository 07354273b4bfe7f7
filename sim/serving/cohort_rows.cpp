#include "sim/serving/cohort_rows.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/check.hpp"

namespace kvsim {

CohortRows::CohortRows(DecodeForm form, std::int64_t page_tokens)
    : form_(std::move(form)), page_tokens_(page_tokens) {
    KVSIM_CHECK(page_tokens >= 1, "pages of {} tokens", page_tokens);
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
    const std::int64_t rest = key % page_tokens_;
    return static_cast<std::size_t>(rest < 0 ? rest + page_tokens_ : rest);
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
    ++count_;
    context_sum_ += start.context;
    ++rows_of_phase_[phase_of(row.key)];
    push(departures_, {step_ + start.remaining, start.slot, row.generation}, later);
    push(contexts_, {row.key, start.slot, row.generation}, shorter);
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
    if (form_.flush) form_.flush->leave(row.ticket, row.first_step, step_);
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
    while (stale(contexts_.front())) {
        std::pop_heap(contexts_.begin(), contexts_.end(), shorter);
        contexts_.pop_back();
    }
    shape.decode = {count_, context_sum_, contexts_.front().value + step_};
    shape.logit_rows += count_;
    grown_ = pages_needed();
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
