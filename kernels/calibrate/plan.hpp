// What kvcalib measures: one Case per row of a profile. Pure host code, no CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/profile_columns.hpp"
#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"

namespace kvsim::calibrate {

// In the order in which they are measured. The names are those of the profile's files.
enum class Kernel : std::uint8_t { kEmpty, kStreamCopy, kStreamRead, kLinearRecurrent, kLinearBuffered };
inline constexpr std::array<std::string_view, 5> kKernelNames{"empty", "stream_copy", "stream_read",
                                                              "linear_recurrent", "linear_buffered"};
constexpr std::string_view name(Kernel k) {
    return kKernelNames[static_cast<std::size_t>(k)];
}
constexpr bool is_linear(Kernel k) {
    return k == Kernel::kLinearRecurrent || k == Kernel::kLinearBuffered;
}

// One launch to measure. Members that a kernel has no use for stay at their defaults, so that equal work
// compares equal.
struct Case {
    Kernel kernel = Kernel::kEmpty;
    LinearShape shape{};        // linear kernels
    int batch = 0;              // linear kernels: rows
    int buffer_length = 0;      // buffered: capacity of the ring
    std::optional<int> fill{};  // buffered: records that every row reads; empty: mixed phases
    int flush_rows = 0;         // buffered: rows that flush
    Bytes bytes{};              // stream probes: size of the source
    L2State l2 = L2State::kCold;

    friend bool operator==(const Case&, const Case&) = default;
};

// Fill and flush flag of every row of a launch, in random order.
//   same phase: every row reads `fill` records; the first rows of a random permutation flush
//   mixed:      flushing rows read C - 1 records, the others are spread evenly over 0..C-2
struct RowPhases {
    std::vector<std::int32_t> fill;   // [batch]
    std::vector<std::uint8_t> flush;  // [batch], 0 or 1
};
RowPhases row_phases(const Case& c, std::uint64_t seed);

// The columns that say what was launched; measured columns stay empty.
ProfileRow describe(const Case& c);

// Bytes of one launch that no other launch of the same rotation touches: a lower bound (states, or the
// probe's arrays).
Bytes distinct_bytes(const Case& c);

// Sets of buffers that the launches rotate over: enough that at least 320 MB and four times the L2 are
// touched before a set comes again; never fewer than two. One set for warm rows and for the empty kernel.
int rotation_sets(const Case& c, Bytes l2_capacity);

// Cases of one group use the same device pools, and follow each other.
bool same_group(const Case& a, const Case& b);
std::vector<std::span<const Case>> groups(std::span<const Case> cases);

}  // namespace kvsim::calibrate
