// What a prefix cache has done over a run.
#pragma once

#include <cstdint>

namespace kvsim {

struct PrefixCounts {
    std::int64_t asked_tokens = 0;  // to prefill at admission, after a preemption too
    std::int64_t hit_tokens = 0;    // of these, found in the cache
    std::int64_t hits = 0;          // admissions that found any: each restores a state
    std::int64_t snapshots = 0;     // copies of states that were taken
    std::int64_t evicted_pages = 0;
    std::int64_t evicted_snapshots = 0;

    PrefixCounts& operator+=(const PrefixCounts& other) {
        asked_tokens += other.asked_tokens;
        hit_tokens += other.hit_tokens;
        hits += other.hits;
        snapshots += other.snapshots;
        evicted_pages += other.evicted_pages;
        evicted_snapshots += other.evicted_snapshots;
        return *this;
    }
    bool operator==(const PrefixCounts&) const = default;
};

}  // namespace kvsim
