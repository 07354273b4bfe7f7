// A replica's memory as one book of integers, whatever pools its engine has: state slots and KV pages apart
// (split), states and KV pages in blocks of one pool (paged), or any byte for anything (bytes).
#pragma once

#include <cstdint>
#include <optional>

#include "sim/memory/capacity.hpp"
#include "sim/memory/engine_memory.hpp"

namespace kvsim {

// What there is, and what requests take of it. A unit is a KV page of split pools, a block of a paged pool, a
// byte of the idealised one.
struct PoolSize {
    std::int64_t slots = 0;  // of state
    std::int64_t slots_per_request = 1;
    std::int64_t units = 0;
    std::int64_t units_per_request = 0;  // that hold its states
    std::int64_t page_tokens = 1;        // a request holds whole pages, >= 1
    std::int64_t units_per_page = 1;
    Limit unit_limit = Limit::kKvTokens;  // the name of units when they run out
    std::int64_t slots_per_snapshot = 0;  // of a state, in a prefix cache
    std::int64_t units_per_snapshot = 0;
};

// The pools that `capacity` solved for `pools`.
PoolSize pool_size(const Capacity& capacity, const MemoryPools& pools);

// Counts never leave [0, what there is]: checked at every change.
class MemoryPool {
  public:
    explicit MemoryPool(const PoolSize& size);

    std::int64_t pages(std::int64_t tokens) const {
        return (tokens + size_.page_tokens - 1) / size_.page_tokens;
    }
    // The limit that a request of `tokens` in the KV cache does not meet even alone, if any.
    std::optional<Limit> refuses(std::int64_t tokens) const;
    // Whether a further request of `pages` fits and leaves `spare` units free.
    bool fits(std::int64_t pages, std::int64_t spare = 0) const {
        return (requests_ + 1) * size_.slots_per_request <= size_.slots &&
               units_used() + size_.units_per_request + pages * size_.units_per_page + spare <= size_.units;
    }
    // Whether the requests that are there can have `pages` more.
    bool can_grow(std::int64_t pages) const {
        return units_used() + pages * size_.units_per_page <= size_.units;
    }

    void admit(std::int64_t pages);
    void grow(std::int64_t pages);  // negative: pages are given back
    void release(std::int64_t pages);

    // Of slots or units, whichever is fuller: 0 .. 1.
    double used_share() const;
    const PoolSize& size() const { return size_; }
    std::int64_t requests() const { return requests_; }
    std::int64_t pages_held() const { return pages_; }
    std::int64_t units_left() const { return size_.units - units_used(); }

  private:
    std::int64_t units_used() const {
        return requests_ * size_.units_per_request + pages_ * size_.units_per_page;
    }
    void check() const;

    PoolSize size_;
    std::int64_t requests_ = 0;
    std::int64_t pages_ = 0;
};

}  // namespace kvsim
