#include "sim/policies/flush.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

namespace kvsim {

std::span<const FlushPolicyEntry> flush_policies() {
    static constexpr std::array<FlushPolicyEntry, 5> kTable{{
        {"fixed_length", "each request flushes every buffer_length tokens, counted from its own prefill",
         make_fixed_length_flush},
        {"aligned", "all flush in the same step of every buffer_length, new ones with what they have",
         make_aligned_flush, make_aligned_row_flush},
        {"staggered", "a new request flushes in the step of the cycle in which the fewest do",
         make_staggered_flush},
        {"deferred", "at most most_per_step flush in a step, others wait until their ring is full",
         make_deferred_flush, make_deferred_row_flush},
        {"deferred_under_load", "as deferred while requests wait or memory is short, else when due",
         make_deferred_under_load_flush, make_deferred_under_load_row_flush},
    }};
    return kTable;
}

std::unique_ptr<RowFlushPolicy> make_row_flush_policy(const FlushParts& parts) {
    if (parts.spec.policy == flush_policies().front().name) return nullptr;
    std::vector<std::string_view> names{flush_policies().front().name};
    for (const FlushPolicyEntry& entry : flush_policies()) {
        if (entry.make_with_drafts == nullptr) continue;
        if (entry.name == parts.spec.policy) return entry.make_with_drafts(parts);
        names.push_back(entry.name);
    }
    throw_mistake({}, "linear.flush.policy",
                  fmt::format("expected one of {} with speculation, got {}{}", join(names), parts.spec.policy,
                              parts.spec.policy == "staggered"
                                  ? ": a row leaves its phase with the drafts that it keeps"
                                  : ""));
}

std::unique_ptr<FlushPolicy> make_flush_policy(const FlushParts& parts) {
    std::vector<std::string_view> names;
    for (const FlushPolicyEntry& entry : flush_policies()) {
        if (entry.name == parts.spec.policy) return entry.make(parts);
        names.push_back(entry.name);
    }
    throw_mistake({}, "linear.flush.policy",
                  fmt::format("expected one of {}, got `{}`{}", join(names), parts.spec.policy,
                              suggestion(parts.spec.policy, names)));
}

}  // namespace kvsim
