// The prefix cache by itself: hits, snapshots, sharing and the order in which things go, worked out by hand,
// and a plain model of it on random sequences.
#include "sim/memory/prefix_cache.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/base/random.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

using Blocks = std::vector<std::uint64_t>;

// Pages of one token, an interval of 4 tokens, blocks of 4.
constexpr std::int64_t kInterval = 4;

PoolSize pool_of(std::int64_t slots, std::int64_t units) {
    PoolSize size;
    size.slots = slots;
    size.units = units;
    size.slots_per_snapshot = 1;
    return size;
}

// A cache and the requests beside it, as a replica uses them.
class Bench {
  public:
    explicit Bench(const PoolSize& size) : pool_(size), cache_({.snapshot_tokens = kInterval}, size) {}

    // Admits a prompt of these blocks and one token more; returns the tokens that it finds.
    std::int64_t admit(std::uint32_t request, const Blocks& blocks) {
        const std::int64_t tokens = static_cast<std::int64_t>(blocks.size()) * kInterval + 1;
        cache_.arrive(request, tokens, blocks, kInterval);
        const PrefixCache::Hit hit = cache_.look_up(request, tokens - 1);
        pool_.admit(tokens - hit.shared_pages);
        cache_.enter(request, tokens);
        cache_.fit(pool_);
        pages_[request] = tokens;
        return hit.tokens;
    }
    void snapshot(std::uint32_t request, std::int64_t tokens) {
        pool_.grow(-cache_.extend(request, tokens));
        cache_.fit(pool_);
    }
    void leave(std::uint32_t request) {
        pool_.release(pages_[request] - cache_.leave(request));
        cache_.forget(request);
    }
    // All of these, one after the other: returns the tokens that it finds.
    std::int64_t serve(std::uint32_t request, const Blocks& blocks) {
        const std::int64_t hit = admit(request, blocks);
        snapshot(request, static_cast<std::int64_t>(blocks.size()) * kInterval);
        leave(request);
        return hit;
    }
    const MemoryPool& pool() const { return pool_; }
    const PrefixCache& cache() const { return cache_; }

  private:
    MemoryPool pool_;
    PrefixCache cache_;
    std::map<std::uint32_t, std::int64_t> pages_;
};

TEST_CASE("a hit needs the pages of the whole prefix and a snapshot at its end") {
    Bench bench(pool_of(10, 100));
    CHECK(bench.admit(0, {1, 2, 3}) == 0);
    bench.snapshot(0, 12);                     // after block 3 only
    CHECK(bench.cache().cached_pages() == 0);  // held by the request
    bench.leave(0);
    CHECK(bench.pool().pages_held() == 0);
    CHECK(bench.cache().cached_pages() == 12);
    CHECK(bench.cache().snapshots() == 1);
    // Blocks 1 and 2 are cached, but no state lies between them and what follows.
    CHECK(bench.admit(1, {1, 2, 4}) == 0);
    bench.snapshot(1, 8);
    bench.leave(1);
    CHECK(bench.cache().cached_pages() == 12);
    CHECK(bench.admit(2, {1, 2, 5}) == 8);
    CHECK(bench.admit(3, {1, 2, 3, 4}) == 12);
    CHECK(bench.admit(4, {2, 3}) == 0);
    CHECK(bench.admit(5, {3}) == 0);
    const PrefixCounts& counts = bench.cache().counts();
    CHECK(counts.asked_tokens == 13 + 13 + 13 + 17 + 9 + 5);
    CHECK(counts.hit_tokens == 8 + 12);
    CHECK(counts.hits == 2);
}

TEST_CASE("what a hit may not reach, and where a prompt leaves the cached pages") {
    const PoolSize size = pool_of(10, 100);
    MemoryPool pool(size);
    PrefixCache cache({.snapshot_tokens = kInterval}, size);
    const Blocks blocks{1, 2, 3};
    cache.arrive(0, 12, blocks, kInterval);
    cache.look_up(0, 11);
    pool.admit(12);
    cache.enter(0, 12);
    CHECK(cache.extend(0, 4) == 0);
    CHECK(cache.extend(0, 12) == 0);
    cache.fit(pool);
    // The same prompt: its last token must be computed, so it starts after block 1; all but the end is known.
    cache.arrive(1, 12, blocks, kInterval);
    const PrefixCache::Hit hit = cache.look_up(1, 11);
    CHECK(hit.tokens == 4);
    CHECK(hit.known_tokens == 8);
    CHECK(hit.shared_pages == 4);  // the first request runs
    CHECK(cache.look_up(1, 12).tokens == 12);
}

TEST_CASE("blocks and intervals of different lengths") {
    // Blocks of 6 tokens, an interval of 4. A prompt of 15 tokens: blocks up to 6, 12 and 15 (18). Its nodes
    // end at 4 (block 1), 8 (block 2) and 12 (block 2).
    const PoolSize size = pool_of(10, 100);
    MemoryPool pool(size);
    PrefixCache cache({.snapshot_tokens = kInterval}, size);
    const auto run = [&](std::uint32_t request, const Blocks& blocks, std::int64_t tokens) {
        cache.arrive(request, tokens, blocks, 6);
        const std::int64_t hit = cache.look_up(request, tokens - 1).tokens;
        pool.admit(tokens - cache.look_up(request, tokens - 1).shared_pages);
        cache.enter(request, tokens);
        for (std::int64_t end = hit + 4; end <= tokens; end += 4) pool.grow(-cache.extend(request, end));
        cache.fit(pool);
        pool.release(tokens - cache.leave(request));
        cache.forget(request);
        return hit;
    };
    CHECK(run(0, {1, 2, 3}, 15) == 0);
    CHECK(run(1, {1, 2, 3}, 15) == 12);
    CHECK(run(1, {1, 2, 9}, 18) == 12);
    CHECK(run(1, {1, 9}, 12) == 4);  // tokens 4 and 5 are the same too, but there is no state after them
    CHECK(run(1, {1}, 6) == 4);
    CHECK(run(1, {9, 2}, 12) == 0);
    // 16 and more: the third block is of the key, whatever its length.
    CHECK(run(2, {1, 2, 3}, 18) == 12);
    CHECK(run(2, {1, 2, 3}, 18) == 16);
}

TEST_CASE("an interval is of whole pages") {
    CHECK(snapshot_interval({.snapshot_tokens = 256}, 1) == 256);
    CHECK(snapshot_interval({.snapshot_tokens = 256}, 64) == 256);
    CHECK(snapshot_interval({.snapshot_tokens = 256}, 1056) == 1056);
    CHECK(snapshot_interval({.snapshot_tokens = 100}, 16) == 112);
}

TEST_CASE("pages that two requests hold count once") {
    Bench bench(pool_of(10, 100));
    bench.serve(0, {1, 2});
    CHECK(bench.admit(1, {1, 2, 3}) == 8);
    CHECK(bench.pool().pages_held() == 13);
    CHECK(bench.cache().cached_pages() == 0);
    CHECK(bench.cache().shared_tokens() == 0);
    CHECK(bench.admit(2, {1, 2, 4}) == 8);
    CHECK(bench.pool().pages_held() == 13 + 5);
    CHECK(bench.cache().shared_tokens() == 8);
    bench.leave(1);
    CHECK(bench.pool().pages_held() == 13);
    bench.leave(2);
    CHECK(bench.pool().pages_held() == 0);
    CHECK(bench.cache().cached_pages() == 8);
}

TEST_CASE("of two that compute the same prefix at once, the second gives its pages back") {
    Bench bench(pool_of(10, 100));
    bench.admit(0, {1, 2});
    bench.admit(1, {1, 2});
    CHECK(bench.pool().pages_held() == 18);
    bench.snapshot(0, 8);
    CHECK(bench.pool().pages_held() == 18);
    bench.snapshot(1, 8);
    CHECK(bench.pool().pages_held() == 10);
    CHECK(bench.cache().snapshots() == 1);
    bench.leave(0);
    bench.leave(1);
    CHECK(bench.pool().pages_held() == 0);
    CHECK(bench.cache().cached_pages() == 8);
}

TEST_CASE("pages that were put back the longest ago go first") {
    Bench bench(pool_of(10, 25));
    bench.serve(0, {1, 2});
    bench.serve(0, {3, 4});
    CHECK(bench.serve(0, {1, 2}) == 8);
    CHECK(bench.cache().cached_pages() == 16);
    // A prompt of 13 leaves 12: one branch must go, and {3, 4} was put back first.
    CHECK(bench.admit(1, {5, 6, 7}) == 0);
    CHECK(bench.cache().cached_pages() == 8);
    CHECK(bench.cache().counts().evicted_pages == 8);
    CHECK(bench.cache().counts().evicted_snapshots == 1);
    bench.leave(1);
    CHECK(bench.serve(0, {3, 4}) == 0);
    CHECK(bench.serve(0, {1, 2}) == 8);
}

TEST_CASE("a prefix outlives the branches that it leads to") {
    // {1}, {1, 2} and {1, 3}, a snapshot each: 12 pages of 17. A prompt of 9 tokens leaves 8: the branch of
    // 2, put back first, goes. One of 13 leaves 4: the branch of 3 goes, and the common block stays.
    Bench bench(pool_of(10, 17));
    bench.serve(0, {1});
    bench.serve(0, {1, 2});
    bench.serve(0, {1, 3});
    CHECK(bench.cache().cached_pages() == 12);
    bench.admit(1, {7, 8});
    bench.leave(1);
    CHECK(bench.cache().cached_pages() == 8);
    CHECK(bench.admit(1, {1, 3}) == 8);
    bench.leave(1);
    CHECK(bench.admit(1, {1, 2}) == 4);
    bench.leave(1);
    bench.admit(1, {7, 8, 9});
    CHECK(bench.cache().cached_pages() == 4);
    bench.leave(1);
    CHECK(bench.admit(1, {1, 3}) == 4);
}

TEST_CASE("snapshots go by their last use, and pages that lead to none go with them") {
    // 3 slots, one of which a request takes: two snapshots.
    Bench bench(pool_of(3, 1000));
    bench.serve(0, {1, 2});
    bench.serve(0, {3});
    CHECK(bench.serve(0, {1, 2}) == 8);  // used: {3} goes before it
    CHECK(bench.cache().snapshots() == 2);
    bench.admit(0, {4});
    CHECK(bench.cache().snapshots() == 2);
    bench.snapshot(0, 4);
    CHECK(bench.cache().snapshots() == 2);
    CHECK(bench.cache().cached_pages() == 8);
    bench.leave(0);
    CHECK(bench.cache().cached_pages() == 12);
    CHECK(bench.serve(0, {3, 5}) == 0);
    // Now {1, 2} has gone: {4} and {3, 5} are left.
    CHECK(bench.admit(0, {1, 2}) == 0);
    CHECK(bench.cache().cached_pages() == 4 + 8);
    // Three requests take all slots: nothing can be cached.
    bench.admit(1, {9});
    CHECK(bench.cache().snapshots() == 1);
    CHECK(bench.cache().has_room(bench.pool()));
    bench.admit(2, {9});
    CHECK(bench.cache().snapshots() == 0);
    CHECK_FALSE(bench.cache().has_room(bench.pool()));
    CHECK(bench.cache().cached_pages() == 0);
}

TEST_CASE("a snapshot may go while a request runs on its pages, which go when it leaves") {
    Bench bench(pool_of(3, 1000));
    bench.serve(0, {1, 2});
    CHECK(bench.admit(0, {1, 2, 3}) == 8);
    bench.admit(1, {9});
    CHECK(bench.cache().snapshots() == 1);
    bench.admit(2, {9});  // takes the last slot
    CHECK(bench.cache().snapshots() == 0);
    CHECK(bench.pool().pages_held() == 13 + 5 + 5);
    bench.leave(0);
    CHECK(bench.cache().cached_pages() == 0);
    CHECK(bench.cache().counts().evicted_pages == 8);
}

TEST_CASE("snapshots in units of one pool make room too") {
    // 30 units, 5 per request and 4 per snapshot, a page of one token is one. A prompt of 9 tokens takes 14.
    PoolSize size;
    size.slots_per_request = 0;
    size.units = 30;
    size.units_per_request = 5;
    size.units_per_snapshot = 4;
    Bench bench(size);
    bench.serve(0, {1});
    bench.serve(0, {2});  // 2 x (4 + 4) = 16 cached
    CHECK(bench.cache().cached_pages() == 8);
    CHECK(bench.admit(0, {3, 4}) == 0);  // 16 are left
    CHECK(bench.cache().cached_pages() == 8);
    bench.snapshot(0, 8);  // 4 more
    CHECK(bench.cache().cached_pages() == 4);
    CHECK(bench.cache().snapshots() == 2);
    bench.leave(0);
    CHECK(bench.admit(0, {2}) == 4);
    bench.leave(0);
    CHECK(bench.admit(0, {1}) == 0);
}

TEST_CASE("misuse of a prefix cache is a fault of ours") {
    Bench bench(pool_of(3, 100));
    bench.admit(0, {1, 2});
    CHECK_THROWS_AS(bench.admit(0, {1, 2}), InvariantError);  // is here already
    CHECK_THROWS_AS(bench.snapshot(0, 5), InvariantError);    // not at the interval
    bench.snapshot(0, 8);
    CHECK_THROWS_AS(bench.snapshot(0, 4), InvariantError);  // backwards
    CHECK_THROWS_AS(PrefixCache({.snapshot_tokens = 4, .slots_in_use = 2}, pool_of(3, 9)), InvariantError);
}

// ---- a plain model: prefixes as lists of blocks, everything else looked for anew ----

Blocks first(const Blocks& blocks, std::size_t count) {
    return Blocks(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count));
}

class PlainCache {
  public:
    struct Node {
        std::int64_t put_back = 0;
        std::optional<std::int64_t> used;  // its snapshot
    };

    std::int64_t hit(const Blocks& blocks) const {
        std::int64_t best = 0;
        for (std::size_t n = 1; n <= blocks.size(); ++n) {
            const auto node = nodes_.find(first(blocks, n));
            if (node == nodes_.end()) break;
            if (node->second.used) best = static_cast<std::int64_t>(n);
        }
        return best;
    }
    bool held(const Blocks& prefix) const {
        return std::any_of(paths_.begin(), paths_.end(),
                           [&](const auto& path) { return is_prefix(prefix, path.second); });
    }
    std::int64_t held_nodes() const {
        return std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& n) { return held(n.first); });
    }
    std::int64_t unheld_nodes() const { return static_cast<std::int64_t>(nodes_.size()) - held_nodes(); }
    std::int64_t snapshots() const {
        return std::count_if(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.second.used; });
    }
    void admit(std::uint32_t request, const Blocks& blocks) {
        paths_[request] = first(blocks, static_cast<std::size_t>(hit(blocks)));
        if (!paths_[request].empty()) nodes_[paths_[request]].used = ++clock_;
    }
    void extend(std::uint32_t request, const Blocks& prefix) {
        for (std::size_t n = 1; n <= prefix.size(); ++n) nodes_[first(prefix, n)];
        nodes_[prefix].used = ++clock_;
        paths_[request] = prefix;
    }
    void leave(std::uint32_t request) {
        const Blocks path = paths_[request];
        paths_.erase(request);
        for (std::size_t n = path.size(); n > 0; --n) {
            const Blocks prefix = first(path, n);
            if (!held(prefix)) nodes_[prefix].put_back = ++clock_;
        }
        drop_useless();
    }
    void fit(std::int64_t slots, std::int64_t pages) {
        while (snapshots() > slots) {
            auto oldest = nodes_.end();
            for (auto n = nodes_.begin(); n != nodes_.end(); ++n) {
                if (n->second.used && (oldest == nodes_.end() || n->second.used < oldest->second.used))
                    oldest = n;
            }
            oldest->second.used.reset();
            drop_useless();
        }
        while (unheld_nodes() * kInterval > pages) {
            auto oldest = nodes_.end();
            for (auto n = nodes_.begin(); n != nodes_.end(); ++n) {
                if (held(n->first)) continue;
                if (oldest == nodes_.end() || n->second.put_back < oldest->second.put_back) oldest = n;
            }
            nodes_.erase(oldest);
            drop_useless();
        }
    }

  private:
    static bool is_prefix(const Blocks& prefix, const Blocks& of) {
        return prefix.size() <= of.size() && std::equal(prefix.begin(), prefix.end(), of.begin());
    }
    // Whatever nobody holds and leads to no snapshot.
    void drop_useless() {
        std::erase_if(nodes_, [&](const auto& node) {
            const bool leads = std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
                return other.second.used && is_prefix(node.first, other.first);
            });
            return !leads && !held(node.first);
        });
    }

    std::map<Blocks, Node> nodes_;
    std::map<std::uint32_t, Blocks> paths_;
    std::int64_t clock_ = 0;
};

struct Running {
    Blocks blocks;
    std::size_t depth = 0;  // of its path, in blocks
};

TEST_CASE("the cache agrees with a plain model on random sequences") {
    RandomStream random(1, "prefix cache");
    const auto draw = [&](std::uint64_t below) { return random.bits() % below; };
    std::int64_t hits = 0;
    std::int64_t evicted = 0;
    for (int scenario = 0; scenario < 200; ++scenario) {
        const PoolSize size =
            pool_of(3 + static_cast<std::int64_t>(draw(6)), 30 + static_cast<std::int64_t>(draw(60)));
        Bench bench(size);
        PlainCache plain;
        std::map<std::uint32_t, Running> running;
        for (int i = 0; i < 100; ++i) {
            const auto request = static_cast<std::uint32_t>(draw(4));
            const auto here = running.find(request);
            if (here == running.end()) {
                Blocks blocks(1 + draw(5));
                for (std::uint64_t& block : blocks) block = draw(2);
                const auto tokens = static_cast<std::int64_t>(blocks.size()) * kInterval + 1;
                if (!bench.pool().fits(tokens)) continue;
                const std::int64_t expected = plain.hit(blocks) * kInterval;
                plain.admit(request, blocks);
                REQUIRE(bench.admit(request, blocks) == expected);
                hits += expected > 0 ? 1 : 0;
                running[request] = {blocks, static_cast<std::size_t>(expected / kInterval)};
            } else if (draw(2) == 0) {
                Running& r = here->second;
                r.depth = std::min(r.blocks.size(), std::max<std::size_t>(r.depth, 1) + draw(3));
                bench.snapshot(request, static_cast<std::int64_t>(r.depth) * kInterval);
                plain.extend(request, first(r.blocks, r.depth));
            } else {
                bench.leave(request);
                plain.leave(request);
                running.erase(here);
            }
            plain.fit(size.slots - bench.pool().requests(), bench.pool().units_left());
            REQUIRE(bench.cache().cached_pages() == plain.unheld_nodes() * kInterval);
            REQUIRE(bench.cache().snapshots() == plain.snapshots());
            // Every page of a request is its own or on a path, and pages of paths count once.
            std::int64_t pages = 0;
            for (const auto& [number, r] : running)
                pages += static_cast<std::int64_t>(r.blocks.size()) * kInterval + 1;
            REQUIRE(bench.pool().pages_held() == pages - bench.cache().shared_tokens());
        }
        evicted += bench.cache().counts().evicted_pages;
    }
    CHECK(hits > 1000);
    CHECK(evicted > 1000);
}

}  // namespace
}  // namespace kvsim
