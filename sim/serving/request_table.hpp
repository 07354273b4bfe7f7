// The requests that a replica has taken in and not finished, in slots that are used again: memory is that of
// the most that were ever there at once.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/base/units.hpp"
#include "sim/serving/decode_rows.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {

// Its number in the run, in order of arrival.
using RequestNumber = std::uint64_t;

// Where a request is. Waiting: before its first admission or after a preemption.
enum class RequestState : std::uint8_t { kWaiting, kPrefilling, kDecoding };

struct InFlight {
    RequestNumber number = 0;
    RequestState state = RequestState::kWaiting;
    std::uint32_t place = 0;      // among the running ones
    std::uint64_t admission = 0;  // order of its latest admission, from 1; 0: never admitted
    std::int64_t prompt = 0;
    std::int64_t output = 0;
    std::int64_t declared = 0;   // output tokens that the scheduler is told of
    std::int64_t generated = 0;  // output tokens before it joined the rows that decode
    std::int64_t target = 0;     // tokens to prefill: prompt, and what it had generated when it was preempted
    std::int64_t prefilled = 0;
    std::int64_t pages = 0;   // that it was admitted with, those that it shares included
    std::int64_t branch = 0;  // tokens after which it leaves what was cached when it was admitted
    Time arrived;
    Time admitted;  // for the first time
    Time first_token;
    Time last_token;  // before it joined the rows that decode
    // Of its time after the first token. While it decodes (or is out) these are what they will be minus the
    // replica's clock then, so that nothing needs to be added while it runs.
    Time interference;
    Time preempted;
    Time flush;
};

class RequestTable {
  public:
    Slot add(const InFlight& request) {
        if (free_.empty()) {
            requests_.push_back(request);
            return static_cast<Slot>(requests_.size() - 1);
        }
        const Slot slot = free_.back();
        free_.pop_back();
        requests_[slot] = request;
        return slot;
    }
    void remove(Slot slot) { free_.push_back(slot); }

    InFlight& operator[](Slot slot) { return requests_[slot]; }
    const InFlight& operator[](Slot slot) const { return requests_[slot]; }
    std::int64_t size() const { return static_cast<std::int64_t>(requests_.size() - free_.size()); }

  private:
    std::vector<InFlight> requests_;
    std::vector<Slot> free_;
};

}  // namespace kvsim
