// The book of integers, and what it is made from.
#include "sim/memory/pool.hpp"

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("what a snapshot of a state takes of each kind of pool") {
    // One slot; a block in each of 3 state groups; state and window, without the ring, which is empty.
    Capacity c;
    c.paged.state_groups = 3;
    c.paged.states_per_request = 2;
    c.state_per_request = Bytes(1000);
    c.conv_per_request = Bytes(20);
    c.buffer_per_request = Bytes(300);
    const PoolSize split = pool_size(c, SplitPools{});
    CHECK(split.slots_per_snapshot == 1);
    CHECK(split.units_per_snapshot == 0);
    const PoolSize paged = pool_size(c, PagedPool{});
    CHECK(paged.slots_per_snapshot == 0);
    CHECK(paged.units_per_snapshot == 3);
    const PoolSize bytes = pool_size(c, BytePool{});
    CHECK(bytes.slots_per_snapshot == 0);
    CHECK(bytes.units_per_snapshot == 1020);
}

TEST_CASE("slots and pages of split pools") {
    Capacity c;
    c.state_slots = 7;
    c.slots_per_request = 3;
    c.kv_tokens = 100;
    SplitPools rule;
    rule.slots_per_request = 3;
    rule.page_tokens = 16;
    MemoryPool pool(pool_size(c, rule));  // two requests, six pages
    CHECK(pool.pages(1) == 1);
    CHECK(pool.pages(16) == 1);
    CHECK(pool.pages(17) == 2);
    CHECK_FALSE(pool.refuses(96));
    CHECK(pool.refuses(97) == Limit::kKvTokens);
    CHECK(pool.fits(6));
    CHECK_FALSE(pool.fits(6, 1));
    pool.admit(3);
    CHECK(pool.used_share() == Approx(0.5));  // 3 of 6 pages, 3 of 7 slots
    CHECK(pool.fits(3));
    CHECK_FALSE(pool.fits(4));
    pool.admit(1);
    CHECK(pool.used_share() == Approx(6.0 / 7.0));
    CHECK_FALSE(pool.fits(0));  // no slots
    CHECK(pool.can_grow(2));
    CHECK_FALSE(pool.can_grow(3));
    pool.grow(2);
    pool.grow(-1);
    pool.release(4);
    pool.release(1);
    CHECK(pool.requests() == 0);
    CHECK(pool.used_share() == 0.0);
    c.state_slots = 2;
    CHECK(MemoryPool(pool_size(c, rule)).refuses(1) == Limit::kStateSlots);
}

TEST_CASE("states and KV entries in blocks of one pool") {
    Capacity c;
    c.paged.blocks = 20;
    c.paged.page_tokens = 16;
    c.paged.attention_groups = 1;
    c.paged.state_groups = 3;
    c.paged.states_per_request = 2;  // 6 blocks of state per request
    MemoryPool pool(pool_size(c, PagedPool{}));
    CHECK_FALSE(pool.refuses(14 * 16));
    CHECK(pool.refuses(14 * 16 + 1) == Limit::kBlocks);
    pool.admit(4);
    CHECK(pool.used_share() == Approx(0.5));
    CHECK(pool.fits(4));
    CHECK_FALSE(pool.fits(5));
}

TEST_CASE("any byte for anything") {
    Capacity c;
    c.kv_pool = Bytes(1000);
    c.kv_per_token = Bytes(10);
    c.request.state = Bytes(300);
    c.request.conv = Bytes(50);
    c.request.kv = Bytes(640);
    MemoryPool pool(pool_size(c, BytePool{}));
    CHECK_FALSE(pool.refuses(65));  // 350 + 650
    CHECK(pool.refuses(66) == Limit::kBytes);
    pool.admit(15);
    CHECK(pool.fits(15));
    CHECK_FALSE(pool.fits(16));
}

TEST_CASE("a model that keeps nothing per request never runs out") {
    const MemoryPool pool(pool_size(Capacity{}, PagedPool{}));
    CHECK_FALSE(pool.refuses(16));
    CHECK(pool.fits(0));
}

TEST_CASE("invariant 2: counts never leave what there is") {
    Capacity c;
    c.state_slots = 1;
    c.kv_tokens = 10;
    const PoolSize size = pool_size(c, SplitPools{});
    MemoryPool full(size);
    full.admit(10);
    CHECK_THROWS_AS(full.grow(1), InvariantError);
    MemoryPool twice(size);
    twice.admit(5);
    CHECK_THROWS_AS(twice.admit(5), InvariantError);  // one slot
    MemoryPool left(size);
    left.admit(5);
    CHECK_THROWS_AS(left.release(4), InvariantError);  // a page without a request
    CHECK_THROWS_AS(MemoryPool(size).release(0), InvariantError);
}

}  // namespace
}  // namespace kvsim
