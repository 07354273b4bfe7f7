#include "sim/policies/speculation.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

namespace kvsim {

std::span<const SpeculationPolicyEntry> speculation_policies() {
    static constexpr std::array<SpeculationPolicyEntry, 4> kTable{{
        {"none", "verifies no drafts: every row yields one token per step", make_no_speculation},
        {"static", "proposes `drafts` for every row in every step", make_static_speculation},
        {"table", "proposes as many drafts as `table` gives for the number of rows", make_table_speculation},
        {"goodput", "proposes the number, up to `drafts`, with the most expected tokens per second",
         make_goodput_speculation},
    }};
    return kTable;
}

std::unique_ptr<SpeculationPolicy> make_speculation_policy(const SpeculationSpec& spec,
                                                           const StepTimes& times) {
    if (spec.most_drafts() > kMostDrafts) {
        throw_mistake({}, "speculation.drafts",
                      fmt::format("expected at most {}, got {}", kMostDrafts, spec.most_drafts()));
    }
    std::vector<std::string_view> names;
    for (const SpeculationPolicyEntry& entry : speculation_policies()) {
        if (entry.name == spec.policy) return entry.make(spec, times);
        names.push_back(entry.name);
    }
    throw_mistake({}, "speculation.policy",
                  fmt::format("expected one of {}, got {}", join(names), spec.policy));
}

}  // namespace kvsim
