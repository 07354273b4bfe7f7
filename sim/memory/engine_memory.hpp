// How an engine divides the memory of a GPU: the `memory` section of its file (configs/engines). Nothing else
// in sim/memory knows an engine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "sim/base/units.hpp"

namespace kvsim {

// What settles the number of state slots: a share of the memory, or one per running request.
enum class SlotCount : std::uint8_t { kShare, kRunning };
inline constexpr std::array<std::string_view, 2> kSlotCountNames{"share", "running"};

// State slots and KV tokens in pools of their own, as in SGLang (mem_cache/kv_cache_configurator.py,
// `_handle_max_mamba_cache`). Of what weights leave, r / (1 + r) is for states: slots, each one copy of
// state, convolution window and ring, q of them per running request; and beside them D = T copies of state
// and window per running request where verification stores its states. KV tokens get the rest.
struct SplitPools {
    double state_ratio = 0.0;             // r
    int slots_per_request = 1;            // q
    SlotCount slots = SlotCount::kShare;  // kRunning with q = 1 alone
    int page_tokens = 1;                  // of a KV page
    bool operator==(const SplitPools&) const = default;
};

// One pool of equal blocks for states and KV, as in vLLM (v1/core/kv_cache_utils.py,
// v1/kv_cache_interface.py, platforms/interface.py). A block is one page in every layer of a group; groups
// hold equally many layers of one kind. The page of a state layer is one copy of state, window and ring; an
// attention layer's holds so many tokens that it is at least as large.
struct PagedPool {
    int page_tokens = 16;               // tokens of an attention page are a multiple of it
    bool aligned_prefix_cache = false;  // one more copy of the state per request: the snapshot under way
    bool operator==(const PagedPool&) const = default;
};

// Idealised: any byte may hold anything and nothing is rounded; a request holds what its form needs.
struct BytePool {
    bool operator==(const BytePool&) const = default;
};

using MemoryPools = std::variant<SplitPools, PagedPool, BytePool>;
inline constexpr std::array<std::string_view, 3> kMemoryPoolNames{"split", "paged", "bytes"};

// kReserved: activations, graphs and the driver live in what `fraction` leaves. kPeak: the fraction holds the
// activations of the largest step too.
enum class ActivationRule : std::uint8_t { kReserved, kPeak };
inline constexpr std::array<std::string_view, 2> kActivationRuleNames{"reserved", "peak"};

// Records of the T tokens under verification: among the m of the buffer, or beside them (a ring of m + T). A
// step holds the records that a row came with and T more, flushing or not, and keeps up to T of them: either
// way a ring has at least 2 T.
enum class DraftRecords : std::uint8_t { kWithin, kBeside };
inline constexpr std::array<std::string_view, 2> kDraftRecordsNames{"within", "beside"};

struct EngineMemory {
    double fraction = 1.0;  // of the device's memory: weights, pools and, with kPeak, activations
    ActivationRule activations = ActivationRule::kReserved;
    std::optional<Bytes> pool;  // of states and KV, given instead of computed from `fraction`
    std::optional<int>
        max_running_with_drafts;  // default that takes the place of a larger max_running_requests
    DraftRecords draft_records = DraftRecords::kWithin;
    MemoryPools pools;

    bool operator==(const EngineMemory&) const = default;
};

}  // namespace kvsim
