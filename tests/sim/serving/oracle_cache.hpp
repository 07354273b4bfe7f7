// The oracle's prefix cache, for prompts without hashes: nobody finds another's pages, so that all it keeps
// are the tails that requests leave when they give way, in the order in which they came.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/memory/pool.hpp"
#include "sim/memory/prefix_counts.hpp"
#include "sim/memory/serving_spec.hpp"

namespace kvsim {

// Of running requests.
struct OracleUse {
    std::int64_t units = 0;
    std::int64_t requests = 0;
};

class OracleCache {
  public:
    OracleCache(const PrefixCacheSpec& spec, const PoolSize& pool) : spec_(spec), pool_(pool) {}

    std::int64_t interval() const { return pages(spec_.snapshot_tokens) * pool_.page_tokens; }

    bool has_room(const OracleUse& use, std::int64_t pages) const {
        return pool_.slots_per_snapshot <= slots_left(use) &&
               use.units + pool_.units_per_snapshot + pages * pool_.units_per_page <= pool_.units;
    }
    void leave(std::size_t request, std::int64_t tokens) { tails_.push_back({request, tokens}); }
    // Tokens that the request finds; its tail is its own again.
    std::int64_t enter(std::size_t request, std::int64_t target) {
        counts_.asked_tokens += target;
        const auto tail = std::ranges::find_if(tails_, [&](const Tail& t) { return t.request == request; });
        if (tail == tails_.end()) return 0;
        const std::int64_t tokens = tail->tokens;
        tails_.erase(tail);
        ++counts_.hits;
        counts_.hit_tokens += tokens;
        return tokens;
    }
    void fit(const OracleUse& use) {
        for (;;) {
            const auto count = static_cast<std::int64_t>(tails_.size());
            std::int64_t units = use.units + count * pool_.units_per_snapshot;
            for (const Tail& t : tails_) units += pages(t.tokens) * pool_.units_per_page;
            if (units <= pool_.units && count * pool_.slots_per_snapshot <= slots_left(use)) return;
            counts_.evicted_pages += pages(tails_.front().tokens);
            ++counts_.evicted_snapshots;
            tails_.erase(tails_.begin());
        }
    }
    void took_snapshot() { ++counts_.snapshots; }
    const PrefixCounts& counts() const { return counts_; }

  private:
    struct Tail {
        std::size_t request = 0;
        std::int64_t tokens = 0;
    };

    std::int64_t pages(std::int64_t tokens) const {
        return (tokens + pool_.page_tokens - 1) / pool_.page_tokens;
    }
    std::int64_t slots_left(const OracleUse& use) const {
        return pool_.slots - (pool_.slots_per_snapshot > 0 ? use.requests * spec_.slots_in_use : 0);
    }

    PrefixCacheSpec spec_;
    PoolSize pool_;
    std::vector<Tail> tails_;
    PrefixCounts counts_;
};

}  // namespace kvsim
