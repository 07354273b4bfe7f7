#include "sim/memory/pool.hpp"

#include <algorithm>
#include <variant>

#include "sim/base/check.hpp"

namespace kvsim {
namespace {

PoolSize size_of(const Capacity& c, const SplitPools& rule) {
    PoolSize size;
    size.slots = c.state_slots;
    size.slots_per_request = c.slots_per_request;
    size.units = c.kv_tokens / rule.page_tokens;
    size.page_tokens = rule.page_tokens;
    size.slots_per_snapshot = 1;
    return size;
}

// One pool has no slots of its own: what states need is in units_per_request.
PoolSize size_of(const Capacity& c, const PagedPool&) {
    PoolSize size;
    size.slots_per_request = 0;
    size.units = c.paged.blocks;
    size.units_per_request = c.paged.state_blocks();
    size.page_tokens = c.paged.page_tokens;
    size.units_per_page = c.paged.attention_groups;
    size.unit_limit = Limit::kBlocks;
    size.units_per_snapshot = c.paged.state_groups;
    return size;
}

PoolSize size_of(const Capacity& c, const BytePool&) {
    PoolSize size;
    size.slots_per_request = 0;
    size.units = c.kv_pool.value();
    size.units_per_request = (c.request.total() - c.request.kv).value();
    size.units_per_page = c.kv_per_token.value();
    size.unit_limit = Limit::kBytes;
    size.units_per_snapshot = (c.state_per_request + c.conv_per_request).value();
    return size;
}

}  // namespace

PoolSize pool_size(const Capacity& capacity, const MemoryPools& pools) {
    return std::visit([&](const auto& rule) { return size_of(capacity, rule); }, pools);
}

MemoryPool::MemoryPool(const PoolSize& size) : size_(size) {
    KVSIM_CHECK(size.slots >= 0 && size.slots_per_request >= 0 && size.units >= 0 &&
                    size.units_per_request >= 0 && size.page_tokens >= 1 && size.units_per_page >= 0,
                "{} slots of {}, {} units of {} + {} per page of {} tokens", size.slots,
                size.slots_per_request, size.units, size.units_per_request, size.units_per_page,
                size.page_tokens);
}

std::optional<Limit> MemoryPool::refuses(std::int64_t tokens) const {
    if (size_.slots_per_request > size_.slots) return Limit::kStateSlots;
    if (size_.units_per_request + pages(tokens) * size_.units_per_page > size_.units) return size_.unit_limit;
    return std::nullopt;
}

void MemoryPool::admit(std::int64_t pages) {
    ++requests_;
    pages_ += pages;
    check();
}

void MemoryPool::grow(std::int64_t pages) {
    if (pages == 0) return;  // most steps
    pages_ += pages;
    check();
}

void MemoryPool::release(std::int64_t pages) {
    --requests_;
    pages_ -= pages;
    check();
}

double MemoryPool::used_share() const {
    const auto share = [](std::int64_t used, std::int64_t of) {
        return of > 0 ? static_cast<double>(used) / static_cast<double>(of) : 0.0;
    };
    return std::max(share(requests_ * size_.slots_per_request, size_.slots),
                    share(units_used(), size_.units));
}

void MemoryPool::check() const {
    KVSIM_CHECK(requests_ >= 0 && pages_ >= 0 && (requests_ > 0 || pages_ == 0), "{} requests hold {} pages",
                requests_, pages_);
    KVSIM_CHECK(requests_ * size_.slots_per_request <= size_.slots && units_used() <= size_.units,
                "{} requests of {} slots in {}; {} of {} units", requests_, size_.slots_per_request,
                size_.slots, units_used(), size_.units);
}

}  // namespace kvsim
