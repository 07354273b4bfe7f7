// What launchers of linear-attention kernels can check on the host. Slots, cursors and flags lie in device
// memory: they are the caller's word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"

namespace kvsim {

inline constexpr int kMaxGridRows = 65535;  // of a CUDA grid in y: rows of the batch

inline bool is_aligned(const void* pointer, std::size_t bytes) {
    return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

inline bool is_valid_linear_shape(const LinearShape& s) {
    const bool format =
        s.state == StateFormat::kFp32 || s.state == StateFormat::kBf16 || s.state == StateFormat::kSplit;
    return s.family == Family::kGdn && format && s.k_dim == 128 && s.v_dim == 128 && s.k_heads > 0 &&
           s.v_heads > 0 && s.v_heads % s.k_heads == 0;
}

// What every form needs.
inline bool has_valid_inputs(const LinearParams& p) {
    const bool sizes = p.batch > 0 && p.batch <= kMaxGridRows && p.batch <= p.slots && p.tokens >= 1 &&
                       p.tokens <= kMaxTokens;
    const bool inputs = is_aligned(p.qkv, 16) && is_aligned(p.a, 4) && is_aligned(p.b, 4) &&
                        is_aligned(p.a_log, 4) && is_aligned(p.dt_bias, 4) && is_aligned(p.slot, 4);
    const bool state =
        is_aligned(p.state, 16) && (p.shape.state != StateFormat::kSplit || is_aligned(p.state_low, 16));
    return is_valid_linear_shape(p.shape) && sizes && inputs && state && is_aligned(p.out, 4);
}

// What buffered forms need besides.
inline bool has_valid_ring(const LinearParams& p) {
    return p.ring_capacity >= p.tokens && p.ring_capacity <= kMaxRingCapacity &&
           (p.shape.records == RecordFormat::kBf16 || p.shape.records == RecordFormat::kFp32U) &&
           is_aligned(p.ring_k, 16) && is_aligned(p.ring_u, 16) && is_aligned(p.ring_gate, 4) &&
           is_aligned(p.start, 4) && is_aligned(p.fill, 4) && p.flush != nullptr;
}

}  // namespace kvsim
