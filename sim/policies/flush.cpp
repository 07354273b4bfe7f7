#include "sim/policies/flush.hpp"

#include <array>

namespace kvsim {

std::span<const FlushPolicyEntry> flush_policies() {
    static constexpr std::array<FlushPolicyEntry, 1> kTable{{
        {"fixed_length", "each request flushes every buffer_length tokens, counted from its own prefill",
         make_fixed_length_flush},
    }};
    return kTable;
}

}  // namespace kvsim
