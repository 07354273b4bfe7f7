#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

namespace {

constexpr IntRange kPageTokens{1, 1 << 16};

SplitPools read_split(const YamlCursor& map) {
    SplitPools pools;
    pools.state_ratio = map.at("state_ratio").real({.min = 0.0, .max = 1e6, .above_min = true});
    pools.slots_per_request = map.at("slots_per_request").small_integer({1, 1024}, 1);
    const YamlCursor slots = map.find("slots");
    pools.slots = slots.choice<SlotCount>(kSlotCountNames, SlotCount::kShare);
    if (pools.slots == SlotCount::kRunning && pools.slots_per_request > 1) {
        slots.mistake(
            fmt::format("expected share, because {} slots per request cannot be one per running request",
                        pools.slots_per_request));
    }
    pools.page_tokens = map.find("page_tokens").small_integer(kPageTokens, 1);
    return pools;
}

PagedPool read_paged(const YamlCursor& map) {
    PagedPool pool;
    pool.page_tokens = map.at("page_tokens").small_integer(kPageTokens, 16);
    pool.aligned_prefix_cache = map.find("aligned_prefix_cache").boolean(false);
    return pool;
}

MemoryPools read_pools(const YamlCursor& map) {
    const std::optional<std::size_t> rule = map.at("pools").choice_index(kMemoryPoolNames);
    if (!rule) map.ignore_rest();  // its keys are the rule's
    if (rule == 1) return read_paged(map);
    if (rule == 2) return BytePool{};
    return rule ? MemoryPools(read_split(map)) : MemoryPools(SplitPools{});
}

template <class Value>
void pair(YAML::Emitter& out, const char* key, const Value& value) {
    out << YAML::Key << key << YAML::Value << value;
}

template <class Enum, std::size_t N>
std::string word(Enum value, const std::array<std::string_view, N>& names) {
    return std::string(names[static_cast<std::size_t>(value)]);
}

void write(YAML::Emitter& out, const SplitPools& pools) {
    pair(out, "state_ratio", shortest(pools.state_ratio));
    pair(out, "slots_per_request", pools.slots_per_request);
    pair(out, "slots", word(pools.slots, kSlotCountNames));
    pair(out, "page_tokens", pools.page_tokens);
}
void write(YAML::Emitter& out, const PagedPool& pool) {
    pair(out, "page_tokens", pool.page_tokens);
    pair(out, "aligned_prefix_cache", pool.aligned_prefix_cache);
}
void write(YAML::Emitter&, const BytePool&) {}

}  // namespace

EngineMemory read_engine_memory(const YamlCursor& map) {
    EngineMemory memory;
    if (!map.present()) return memory;
    memory.fraction = map.at("fraction").real({.min = 0.0, .max = 1.0, .above_min = true});
    memory.activations = map.at("activations").choice<ActivationRule>(kActivationRuleNames);
    if (const YamlCursor pool = map.find("pool"); pool.present()) memory.pool = pool.bytes();
    if (const YamlCursor running = map.find("max_running_with_drafts"); running.present())
        memory.max_running_with_drafts = running.small_integer({1, 1 << 20}, 1);
    memory.draft_records = map.find("draft_records").choice<DraftRecords>(kDraftRecordsNames);
    memory.pools = read_pools(map);
    return memory;
}

void write_engine_memory(YAML::Emitter& out, const EngineMemory& memory) {
    out << YAML::BeginMap;
    pair(out, "fraction", shortest(memory.fraction));
    pair(out, "activations", word(memory.activations, kActivationRuleNames));
    if (memory.pool) pair(out, "pool", to_text(*memory.pool));
    if (memory.max_running_with_drafts) pair(out, "max_running_with_drafts", *memory.max_running_with_drafts);
    pair(out, "draft_records", word(memory.draft_records, kDraftRecordsNames));
    pair(out, "pools", std::string(kMemoryPoolNames[memory.pools.index()]));
    std::visit([&](const auto& pools) { write(out, pools); }, memory.pools);
    out << YAML::EndMap;
}

}  // namespace kvsim
