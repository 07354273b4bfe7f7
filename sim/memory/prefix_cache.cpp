#include "sim/memory/prefix_cache.hpp"

#include <algorithm>

#include "sim/base/check.hpp"
#include "sim/base/random.hpp"

namespace kvsim {

PrefixCache::PrefixCache(const PrefixCacheSpec& spec, const PoolSize& size)
    : interval_(snapshot_interval(spec, size.page_tokens)),
      node_pages_(interval_ / size.page_tokens),
      slots_in_use_(size.slots_per_snapshot > 0 ? spec.slots_in_use : 0),
      size_(size) {
    KVSIM_CHECK(spec.snapshot_tokens >= 1 && slots_in_use_ >= 0 && slots_in_use_ <= size.slots_per_request,
                "snapshots every {} tokens; requests set {} slots aside and use {}", spec.snapshot_tokens,
                size.slots_per_request, slots_in_use_);
}

// The key of a node is a hash of all blocks up to its end and of its depth. Two prefixes that differ get the
// same 64 bits with a chance of n^2 / 2^65 among n nodes: 1e-8 with a million.
void PrefixCache::arrive(Request request, std::int64_t prompt_tokens, std::span<const std::uint64_t> blocks,
                         std::int64_t block_tokens) {
    if (request >= prompts_.size()) prompts_.resize(request + std::size_t{1});
    Prompt& prompt = prompts_[request];
    KVSIM_CHECK(prompt.node == kRoot && prompt.keys.empty(), "request {} is here already", request);
    const std::int64_t hashed =
        std::min(prompt_tokens, static_cast<std::int64_t>(blocks.size()) * block_tokens);
    std::uint64_t hash = 0;
    std::int64_t block = 0;
    for (std::int64_t end = interval_; end <= hashed; end += interval_) {
        for (; block * block_tokens < end; ++block)
            hash = split_mix((hash + kSplitMixStep) ^ split_mix(blocks[static_cast<std::size_t>(block)]));
        prompt.keys.push_back(numbered_bits(hash, prompt.keys.size() + 1));
    }
}

const PrefixCache::Hit& PrefixCache::look_up(Request request, std::int64_t most_tokens) {
    Prompt& prompt = prompts_[request];
    if (prompt.looked_up == version_ && prompt.most_tokens == most_tokens) return prompt.hit;
    prompt.looked_up = version_;
    prompt.most_tokens = most_tokens;
    prompt.hit = {};
    prompt.hit_node = kRoot;
    if (prompt.tail != kRoot) {
        find_tail(prompt);
        KVSIM_CHECK(prompt.hit.tokens <= most_tokens, "a tail of {} tokens for a request of {}",
                    prompt.hit.tokens, most_tokens);
        return prompt.hit;
    }
    const auto most = std::min(prompt.keys.size(), static_cast<std::size_t>(most_tokens / interval_));
    std::int64_t held = 0;
    for (std::size_t i = 0; i < most; ++i) {
        const std::uint32_t node = find(prompt.keys[i]);
        if (node == kRoot) break;
        held += nodes_[node].holders > 0 ? 1 : 0;
        prompt.hit.known_tokens += interval_;
        if (!nodes_[node].snapshot) continue;
        prompt.hit.tokens = prompt.hit.known_tokens;
        prompt.hit.shared_pages = held * node_pages_;
        prompt.hit_node = node;
    }
    return prompt.hit;
}

// All of the request's tokens but the last: nothing longer can be found.
void PrefixCache::find_tail(Prompt& prompt) const {
    prompt.hit.tokens = prompt.hit.known_tokens = prompt.tail_tokens;
    prompt.hit.shared_pages = 0;
    prompt.hit_node = nodes_[prompt.tail].parent;
    for (std::uint32_t node = prompt.hit_node; node != kRoot; node = nodes_[node].parent)
        prompt.hit.shared_pages += nodes_[node].holders > 0 ? node_pages_ : 0;
}

void PrefixCache::enter(Request request, std::int64_t asked_tokens) {
    Prompt& prompt = prompts_[request];
    const std::int64_t tokens = prompt.hit.tokens;
    KVSIM_CHECK(prompt.node == kRoot && prompt.looked_up == version_ && tokens < asked_tokens,
                "request {} of {} tokens enters with {}", request, asked_tokens, tokens);
    ++version_;
    counts_.asked_tokens += asked_tokens;
    counts_.hit_tokens += tokens;
    if (tokens == 0) return;
    ++counts_.hits;
    prompt.node = prompt.hit_node;
    prompt.depth = depth_of(prompt.node);
    for (std::uint32_t node = prompt.node; node != kRoot; node = nodes_[node].parent) hold(node);
    if (prompt.tail != kRoot) {
        take_tail(prompt);
    } else {
        take_snapshot(prompt.node);  // used: it goes last again
    }
}

std::int64_t PrefixCache::extend(Request request, std::int64_t tokens) {
    Prompt& prompt = prompts_[request];
    const auto depth = static_cast<std::size_t>(tokens / interval_);
    KVSIM_CHECK(tokens % interval_ == 0 && depth >= prompt.depth, "a snapshot at {} tokens, after {} of {}",
                tokens, prompt.depth, interval_);
    if (depth > prompt.keys.size()) return 0;
    ++version_;
    std::int64_t shared = 0;
    while (prompt.depth < depth) {
        const std::uint64_t key = prompt.keys[prompt.depth++];
        std::uint32_t node = find(key);
        if (node == kRoot) node = add({.key = key, .parent = prompt.node});
        shared += nodes_[node].holders > 0 ? 1 : 0;
        hold(node);
        prompt.node = node;
    }
    if (prompt.node != kRoot) take_snapshot(prompt.node);
    return shared * node_pages_;
}

std::int64_t PrefixCache::shared_pages(Request request) const {
    std::int64_t shared = 0;
    for (std::uint32_t node = prompts_[request].node; node != kRoot; node = nodes_[node].parent)
        shared += nodes_[node].holders > 1 ? node_pages_ : 0;
    return shared;
}

std::int64_t PrefixCache::leave(Request request, std::int64_t tail_tokens) {
    Prompt& prompt = prompts_[request];
    const std::uint32_t end = prompt.node;
    ++version_;
    if (tail_tokens > 0) add_tail(request, tail_tokens);  // before its path: it goes first
    std::int64_t shared = 0;
    for (std::uint32_t node = end; node != kRoot; node = nodes_[node].parent) {
        put_back(node);
        shared += nodes_[node].holders > 0 ? 1 : 0;
    }
    prompt.node = kRoot;
    prompt.depth = 0;
    prune(end);
    return shared * node_pages_;
}

void PrefixCache::forget(Request request) {
    KVSIM_CHECK(prompts_[request].node == kRoot && prompts_[request].tail == kRoot,
                "request {} is forgotten while it runs or waits", request);
    prompts_[request].keys.clear();
    prompts_[request].looked_up = 0;
}

std::int64_t PrefixCache::slots_left(const MemoryPool& pool) const {
    return size_.slots - pool.requests() * slots_in_use_;
}

bool PrefixCache::has_room(const MemoryPool& pool, std::int64_t pages) const {
    return size_.slots_per_snapshot <= slots_left(pool) &&
           size_.units_per_snapshot + pages * size_.units_per_page <= pool.units_left();
}

void PrefixCache::fit(const MemoryPool& pool) {
    const std::int64_t slots = slots_left(pool);
    const std::int64_t units = pool.units_left();
    while (snapshot_count_ * size_.slots_per_snapshot > slots) evict_snapshot();
    while (cached_pages() * size_.units_per_page + snapshot_count_ * size_.units_per_snapshot > units) {
        if (unheld_.empty()) {
            evict_snapshot();
        } else {
            evict_node();
        }
    }
    // Invariant 2: what is cached and what requests hold share the pool, and no page is with both.
    KVSIM_CHECK(held_ <= nodes_in_use_ && held_ <= paths_ && held_ * node_pages_ <= pool.pages_held(),
                "{} of {} nodes are held, by paths of {} nodes, with {} pages", held_, nodes_in_use_, paths_,
                pool.pages_held());
}

std::uint32_t PrefixCache::find(std::uint64_t key) const {
    const auto found = node_of_key_.find(key);
    return found == node_of_key_.end() ? kRoot : found->second;
}

std::uint32_t PrefixCache::add(const Node& added) {
    std::uint32_t node = 0;
    if (free_.empty()) {
        node = static_cast<std::uint32_t>(nodes_.size());
        nodes_.emplace_back();
    } else {
        node = free_.back();
        free_.pop_back();
    }
    nodes_[node] = added;
    ++nodes_[added.parent].children;
    unheld_.push(node);
    if (added.tail) return node;
    node_of_key_.emplace(added.key, node);
    ++nodes_in_use_;
    return node;
}

std::uint32_t PrefixCache::depth_of(std::uint32_t node) const {
    std::uint32_t depth = 0;
    for (; node != kRoot; node = nodes_[node].parent) ++depth;
    return depth;
}

std::int64_t PrefixCache::pages_of_tail(const Prompt& prompt) const {
    const std::int64_t pages = (prompt.tail_tokens + size_.page_tokens - 1) / size_.page_tokens;
    return pages - depth_of(nodes_[prompt.tail].parent) * node_pages_;
}

void PrefixCache::add_tail(Request request, std::int64_t tokens) {
    Prompt& prompt = prompts_[request];
    KVSIM_CHECK(prompt.tail == kRoot && tokens > prompt.depth * interval_,
                "request {} leaves a tail up to {} tokens behind {} of {}", request, tokens, prompt.depth,
                interval_);
    prompt.tail = add({.key = request, .parent = prompt.node, .tail = true});
    prompt.tail_tokens = tokens;
    tail_pages_ += pages_of_tail(prompt);
    take_snapshot(prompt.tail);
}

// Its pages are the request's again, which holds its path, and its state has been copied.
void PrefixCache::take_tail(Prompt& prompt) {
    snapshots_.remove(prompt.tail);
    --snapshot_count_;
    remove(prompt.tail);
}

void PrefixCache::hold(std::uint32_t node) {
    ++paths_;
    if (nodes_[node].holders++ > 0) return;
    unheld_.remove(node);
    ++held_;
}

void PrefixCache::put_back(std::uint32_t node) {
    --paths_;
    if (--nodes_[node].holders > 0) return;
    unheld_.push(node);
    --held_;
}

void PrefixCache::take_snapshot(std::uint32_t node) {
    if (nodes_[node].snapshot) {
        snapshots_.remove(node);
    } else {
        nodes_[node].snapshot = true;
        ++snapshot_count_;
    }
    snapshots_.push(node);
}

void PrefixCache::drop_snapshot(std::uint32_t node) {
    snapshots_.remove(node);
    nodes_[node].snapshot = false;
    ++version_;
    --snapshot_count_;
    ++counts_.evicted_snapshots;
}

void PrefixCache::remove(std::uint32_t node) {
    const Node& gone = nodes_[node];
    unheld_.remove(node);
    if (gone.tail) {
        Prompt& prompt = prompts_[gone.key];
        tail_pages_ -= pages_of_tail(prompt);
        prompt.tail = kRoot;
    } else {
        node_of_key_.erase(gone.key);
        --nodes_in_use_;
    }
    --nodes_[gone.parent].children;
    free_.push_back(node);
}

// Removes the node, and those before it, as far as they lead to no snapshot and nobody holds them.
void PrefixCache::prune(std::uint32_t node) {
    while (node != kRoot) {
        const Node& last = nodes_[node];
        if (last.snapshot || last.children > 0 || last.holders > 0) return;
        const std::uint32_t parent = last.parent;
        counts_.evicted_pages += last.tail ? pages_of_tail(prompts_[last.key]) : node_pages_;
        remove(node);
        node = parent;
    }
}

void PrefixCache::evict_node() {
    const std::uint32_t node = unheld_.oldest();
    KVSIM_CHECK(nodes_[node].children == 0 && nodes_[node].snapshot,
                "node {} goes first, with {} children and {} snapshot", node, nodes_[node].children,
                nodes_[node].snapshot ? "a" : "no");
    drop_snapshot(node);
    prune(node);
}

void PrefixCache::evict_snapshot() {
    KVSIM_CHECK(!snapshots_.empty(), "no snapshot of {} is left to go", snapshot_count_);
    const std::uint32_t node = snapshots_.oldest();
    drop_snapshot(node);
    prune(node);
}

}  // namespace kvsim
