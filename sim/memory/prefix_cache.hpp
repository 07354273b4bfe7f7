// Prefix cache of a hybrid model: KV pages of prompts, and snapshots of the recurrent state, both kept for
// later prompts that begin alike.
//
// KV entries of a prefix are of use only with the state at its end, so a hit ends at a snapshot. Snapshots
// lie at multiples of an interval of whole pages; a node of the tree is the pages of one interval, known by
// the blocks of the prompt up to its end. Nodes that running requests hold (the path of each, from the root)
// count as theirs, once for all of them; all others, and every snapshot, which is copied when it is used,
// live in memory that requests leave and go when these want it.
//
// What goes first, as in SGLang (mem_cache/mamba_radix_cache.py): of pages, the node that was held last the
// longest ago, which is always a leaf, because a path is put back from its end to the root; of snapshots, the
// one that was taken or used the longest ago. Pages behind the last snapshot of their branch are of no use
// and go at once.
//
// A request that gives way may leave a tail: a node of its own behind its path, of all pages up to its last
// token, with a snapshot there. It alone finds it, and takes it out of the tree when it is admitted again.
//
// A request costs O(its blocks + its intervals). Memory: nodes of what the pool holds, 8 bytes per interval
// of the prompts that are in the system.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/memory/pool.hpp"
#include "sim/memory/prefix_counts.hpp"
#include "sim/memory/recency_list.hpp"
#include "sim/memory/serving_spec.hpp"

namespace kvsim {

// Tokens between snapshots: as many as the engine says, rounded up to whole pages.
constexpr std::int64_t snapshot_interval(const PrefixCacheSpec& spec, std::int64_t page_tokens) {
    return (spec.snapshot_tokens + page_tokens - 1) / page_tokens * page_tokens;
}

class PrefixCache {
  public:
    // A number that is used again when the request has left.
    using Request = std::uint32_t;

    // The longest prefix that a request can start from.
    struct Hit {
        std::int64_t tokens = 0;
        std::int64_t shared_pages = 0;  // of these tokens, held by running requests already
        std::int64_t known_tokens = 0;  // whose pages are there, with a snapshot at the end or not; >= tokens
    };

    PrefixCache(const PrefixCacheSpec& spec, const PoolSize& size);

    std::int64_t interval() const { return interval_; }

    // A request of which the first blocks.size() x block_tokens tokens of the prompt have hashes, the last
    // block of which may be longer than what is left of the prompt.
    void arrive(Request request, std::int64_t prompt_tokens, std::span<const std::uint64_t> blocks,
                std::int64_t block_tokens);
    // What it finds now, at most `most_tokens`. Costs nothing when nothing has changed since it last looked.
    const Hit& look_up(Request request, std::int64_t most_tokens);
    // It is admitted with the hit that it has just looked up, and has `asked_tokens` to prefill, these
    // included.
    void enter(Request request, std::int64_t asked_tokens);
    // Its first `tokens` tokens are computed, and a snapshot was taken there, at a multiple of the interval.
    // Returns pages that it no longer needs, because others hold the same ones. Prompts without hashes that
    // far are not kept.
    std::int64_t extend(Request request, std::int64_t tokens);
    // It runs no longer. Returns those of its pages that others hold still. Behind its path it leaves a tail
    // up to `tail_tokens`, where a snapshot was taken; 0: none.
    std::int64_t leave(Request request, std::int64_t tail_tokens = 0);
    // Tokens of its path, and the pages of these that others hold too.
    std::int64_t path_tokens(Request request) const { return prompts_[request].depth * interval_; }
    std::int64_t shared_pages(Request request) const;
    // It has left the system.
    void forget(Request request);

    // Lets go of what does not fit beside the requests in `pool`: to be called whenever these take more.
    void fit(const MemoryPool& pool);
    // Whether there is memory for a snapshot and `pages` beside them, if everything else went.
    bool has_room(const MemoryPool& pool, std::int64_t pages = 0) const;
    void took_snapshots(std::int64_t count) { counts_.snapshots += count; }

    // Tokens of paths of running requests that were counted for another request already.
    std::int64_t shared_tokens() const { return (paths_ - held_) * interval_; }
    // That no running request holds.
    std::int64_t cached_pages() const { return (nodes_in_use_ - held_) * node_pages_ + tail_pages_; }
    std::int64_t snapshots() const { return snapshot_count_; }
    const PrefixCounts& counts() const { return counts_; }

  private:
    static constexpr std::uint32_t kRoot = 0;
    struct Node {
        std::uint64_t key = 0;
        std::uint32_t parent = kRoot;
        std::uint32_t children = 0;
        std::uint32_t holders = 0;  // running requests whose path it is on
        bool snapshot = false;      // of the state at its end
        bool tail = false;          // key: the request whose it is
    };
    struct Prompt {
        std::vector<std::uint64_t> keys;  // of its nodes
        std::uint32_t node = kRoot;       // end of the path that it holds
        std::uint32_t depth = 0;          // nodes of that path
        Hit hit;                          // that it found last,
        std::int64_t most_tokens = 0;     // within so many tokens,
        std::uint64_t looked_up = 0;      // when the version was this
        std::uint32_t hit_node = kRoot;   // its end
        std::uint32_t tail = kRoot;       // that it left: none
        std::int64_t tail_tokens = 0;     // up to its end
    };

    std::uint32_t find(std::uint64_t key) const;  // kRoot: not there
    std::uint32_t add(const Node& node);
    void add_tail(Request request, std::int64_t tokens);
    std::int64_t pages_of_tail(const Prompt& prompt) const;
    std::uint32_t depth_of(std::uint32_t node) const;
    void find_tail(Prompt& prompt) const;
    void take_tail(Prompt& prompt);
    void remove(std::uint32_t node);
    void hold(std::uint32_t node);
    void put_back(std::uint32_t node);
    void take_snapshot(std::uint32_t node);
    void drop_snapshot(std::uint32_t node);
    void prune(std::uint32_t node);
    void evict_node();
    void evict_snapshot();
    std::int64_t slots_left(const MemoryPool& pool) const;

    std::int64_t interval_;
    std::int64_t node_pages_;
    std::int64_t slots_in_use_;
    PoolSize size_;
    std::vector<Node> nodes_{1};
    std::vector<std::uint32_t> free_;
    std::unordered_map<std::uint64_t, std::uint32_t> node_of_key_;
    RecencyList unheld_;     // nodes, by when they were put back
    RecencyList snapshots_;  // nodes, by when their snapshot was taken or used
    std::vector<Prompt> prompts_;
    std::int64_t nodes_in_use_ = 0;  // without the root and tails
    std::int64_t held_ = 0;          // of these, by running requests
    std::int64_t paths_ = 0;         // nodes of the paths of all running requests together
    std::int64_t tail_pages_ = 0;
    std::int64_t snapshot_count_ = 0;
    std::uint64_t version_ = 1;  // changes with whatever a look-up could find
    PrefixCounts counts_;
};

}  // namespace kvsim
