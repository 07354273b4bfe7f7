// Who gives way when memory runs out, and where it waits then.
#pragma once

#include <cstdint>

#include "sim/memory/serving_spec.hpp"

namespace kvsim {

struct VictimCandidate {
    std::int64_t generated = 0;
    std::int64_t prompt = 0;
    std::uint64_t admission = 0;  // order of admission; no two are equal
};

// True if `a` gives way before `b`. fewest_output is SGLang's retract_decode: of equal outputs the longest
// prompt.
constexpr bool gives_way_before(VictimRule rule, const VictimCandidate& a, const VictimCandidate& b) {
    if (rule == VictimRule::kFewestOutput) {
        if (a.generated != b.generated) return a.generated < b.generated;
        if (a.prompt != b.prompt) return a.prompt > b.prompt;
    }
    return a.admission > b.admission;
}

// vLLM puts a victim at the head of the queue, SGLang behind all that wait.
constexpr bool waits_at_the_head(VictimRule rule) {
    return rule == VictimRule::kLastAdmitted;
}

}  // namespace kvsim
