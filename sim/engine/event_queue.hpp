// The clock and the pending events of a discrete-event simulation. Knows nothing of what the events mean.
//
// Order of events is total, so that a run does not depend on how the queue is built:
//   1. time, in picoseconds;
//   2. phase: an enum of the user, smallest first, for events of one instant that must not be swapped;
//   3. sequence number: of equal time and phase, the first one pushed comes first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/base/units.hpp"

namespace kvsim {

// A binary heap on a vector: it allocates only while it grows beyond its largest size so far.
template <class Payload, class Phase>
class EventQueue {
    static_assert(std::is_enum_v<Phase>, "the phase is an enum, so that each value can carry its reason");

  public:
    struct Event {
        Time time;
        Phase phase;
        Payload payload;
    };

    // Time of the event that was popped last; zero before the first.
    Time now() const { return now_; }
    bool empty() const { return heap_.empty(); }
    std::size_t size() const { return heap_.size(); }
    // Time of the next event. Requires !empty().
    Time next_time() const {
        KVSIM_CHECK(!heap_.empty(), "no event is pending at {} ps", now_.value());
        return heap_.front().event.time;
    }

    // `time` is not before now().
    void push(Time time, Phase phase, Payload payload) {
        KVSIM_CHECK(time >= now_, "event at {} ps pushed at {} ps", time.value(), now_.value());
        heap_.push_back({{time, phase, std::move(payload)}, pushed_++});
        std::push_heap(heap_.begin(), heap_.end(), later);
    }

    // `delay` from now; not negative, and not beyond the range of time.
    void push_after(Time delay, Phase phase, Payload payload) {
        constexpr Time kEnd(std::numeric_limits<std::int64_t>::max());
        KVSIM_CHECK(delay >= Time() && delay <= kEnd - now_,
                    "delay of {} ps at {} ps is negative or beyond the range", delay.value(), now_.value());
        push(now_ + delay, phase, std::move(payload));
    }

    // Removes the first event and moves the clock to its time. Requires !empty().
    Event pop() {
        KVSIM_CHECK(!heap_.empty(), "no event is pending at {} ps", now_.value());
        std::pop_heap(heap_.begin(), heap_.end(), later);
        Event event = std::move(heap_.back().event);
        heap_.pop_back();
        KVSIM_CHECK(event.time >= now_, "the clock would run back from {} to {} ps", now_.value(),
                    event.time.value());
        now_ = event.time;
        return event;
    }

  private:
    struct Entry {
        Event event;
        std::uint64_t sequence;
    };
    // The heap of the standard library keeps the largest in front: "less" means later here.
    static bool later(const Entry& a, const Entry& b) {
        if (a.event.time != b.event.time) return a.event.time > b.event.time;
        if (a.event.phase != b.event.phase) return a.event.phase > b.event.phase;
        return a.sequence > b.sequence;
    }

    std::vector<Entry> heap_;
    std::uint64_t pushed_ = 0;
    Time now_;
};

}  // namespace kvsim
