#include "sim/policies/flush_calendar.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/check.hpp"

namespace kvsim {
namespace {

// Before every step. Far from the ends of the range, so that differences of steps fit.
constexpr std::int64_t kEver = std::numeric_limits<std::int64_t>::min() / 4;

}  // namespace

FlushCalendar::FlushCalendar(int length, int ring)
    : days_(static_cast<std::size_t>(ring)), lengths_{{kEver, length, 0}}, emptied_(kEver) {
    KVSIM_CHECK(length >= 1 && length <= ring, "cycles of {} tokens in rings of {}", length, ring);
    for (Day& day : days_) day.emptied = kEver;
}

std::size_t FlushCalendar::slot(std::int64_t step) const {
    const auto days = static_cast<std::int64_t>(days_.size());
    const std::int64_t rest = step % days;
    return static_cast<std::size_t>(rest < 0 ? rest + days : rest);
}

// Rows that were here when all buffers were emptied hold nothing older; all of a day that does not know of it
// were.
FlushCalendar::Day& FlushCalendar::day(std::int64_t step) {
    Day& day = days_[slot(step)];
    if (day.emptied < emptied_) {
        day.starts = day.rows * emptied_;
        day.emptied = emptied_;
    }
    return day;
}

std::size_t FlushCalendar::before(std::int64_t step) const {
    const auto later = std::ranges::lower_bound(lengths_, step, {}, &Length::from);
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, later - lengths_.begin()) - 1);
}

void FlushCalendar::join(std::int64_t first, std::int64_t due) {
    KVSIM_CHECK(due >= first && due - first < static_cast<std::int64_t>(days_.size()),
                "a row joins at step {} to flush at {}, with rings of {}", first, due, days_.size());
    Day& joined = day(due);
    ++joined.rows;
    joined.starts += first;
    ++rows_;
    ++length_of(first).joined;
}

FlushCalendar::Flushes FlushCalendar::follow(std::int64_t due, std::int64_t next) const {
    Flushes flushes{kEver, due};
    for (std::size_t i = before(due + 1); flushes.next < next; ++i) {
        const std::int64_t end = i + 1 == lengths_.size() ? next : std::min(next, lengths_[i + 1].from);
        const std::int64_t length = lengths_[i].length;
        const std::int64_t cycles = (end - flushes.next + length - 1) / length;
        if (cycles <= 0) continue;
        flushes.next += cycles * length;
        flushes.last = flushes.next - length;
    }
    return flushes;
}

void FlushCalendar::leave(std::int64_t first, std::int64_t due, std::int64_t next) {
    const Flushes flushes = follow(due, next);
    const std::int64_t start = std::max({first, flushes.last + 1, emptied_});
    Day& left = day(flushes.next);
    --left.rows;
    left.starts -= start;
    --rows_;
    buffered_ -= next - start;
    Length& length = length_of(first);
    --length.joined;
    KVSIM_CHECK(left.rows >= 0 && buffered_ >= 0 && length.joined >= 0,
                "a row left that had not joined at step {}", first);
    while (lengths_.size() > 1 && lengths_.front().joined == 0) lengths_.pop_front();
}

// Rows that flushed in `step` do so again a cycle later.
void FlushCalendar::start_cycle(std::int64_t step) {
    Day& today = day(step);
    const std::int64_t rows = today.rows;
    today.rows = 0;
    today.starts = 0;
    Day& next = day(step + length());
    next.rows += rows;
    next.starts += rows * (step + 1);
}

void FlushCalendar::step(std::int64_t step, StepShape& shape) {
    const Day& today = day(step);
    LinearWork& work = shape[Form::kBuffered];
    work.sequences = rows_;
    work.new_tokens = rows_;
    work.buffered_tokens = buffered_;
    work.flushes = today.rows;
    work.flushed_tokens = today.rows * (step + 1) - today.starts;
    buffered_ += rows_ - work.flushed_tokens;
    start_cycle(step);
}

void FlushCalendar::fold(std::int64_t step) {
    emptied_ = step + 1;
    buffered_ = 0;
    start_cycle(step);
}

void FlushCalendar::set_length(int length, std::int64_t step) {
    KVSIM_CHECK(length >= 1 && length <= static_cast<int>(days_.size()), "cycles of {} tokens in rings of {}",
                length, days_.size());
    if (length == this->length()) return;
    KVSIM_CHECK(step > lengths_.back().from, "two lengths for step {}", step);
    lengths_.push_back({step, length, 0});
}

}  // namespace kvsim
