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
enum class Kernel : std::uint8_t {
    kEmpty,
    kStreamCopy,
    kStreamRead,
    kStreamAppend,
    kLinearRecurrent,
    kLinearBuffered,
    kLinearVerifyStored,
    kLinearVerifyBuffered
};
inline constexpr std::array<std::string_view, 8> kKernelNames{
    "empty",           "stream_copy",          "stream_read",           "stream_append", "linear_recurrent",
    "linear_buffered", "linear_verify_stored", "linear_verify_buffered"};
constexpr std::string_view name(Kernel k) {
    return kKernelNames[static_cast<std::size_t>(k)];
}
constexpr bool is_linear(Kernel k) {
    return k >= Kernel::kLinearRecurrent;
}
constexpr bool has_ring(Kernel k) {
    return k == Kernel::kLinearBuffered || k == Kernel::kLinearVerifyBuffered;
}
constexpr bool is_verify(Kernel k) {
    return k == Kernel::kLinearVerifyStored || k == Kernel::kLinearVerifyBuffered;
}
Form form_of(Kernel linear);

// One launch to measure. Members that a kernel has no use for stay at their defaults, so that equal work
// compares equal.
struct Case {
    Kernel kernel = Kernel::kEmpty;
    LinearShape shape{};        // linear kernels
    int batch = 0;              // linear kernels: rows
    int tokens = 1;             // verify: new tokens of every row
    int buffer_length = 0;      // kernels with a ring, as all that follow: its capacity
    std::optional<int> fill{};  // records that every row reads; empty: mixed phases
    int flush_rows = 0;         // rows that flush
    Bytes bytes{};              // stream probes: size of the source
    L2State l2 = L2State::kCold;

    friend bool operator==(const Case&, const Case&) = default;

    // The fill at which a row has to flush: its new tokens are the last that the ring takes.
    int last_fill() const { return buffer_length - tokens; }
};

// Ring cursor and flush flag of every row of a launch, in random order.
//   same phase: every row reads `fill` records; the first rows of a random permutation flush
//   mixed:      flushing rows read last_fill() records, the others are spread evenly over the fills below
// Rings begin anywhere, as those of requests that have been served for a while.
struct RowPhases {
    std::vector<std::int32_t> start;  // [batch], 0..buffer_length - 1
    std::vector<std::int32_t> fill;   // [batch]
    std::vector<std::uint8_t> flush;  // [batch], 0 or 1
};
RowPhases row_phases(const Case& c, std::uint64_t seed);

// The columns that say what was launched; measured columns stay empty.
ProfileRow describe(const Case& c);

// Bytes of one launch of a cold rotation, and of the memory that it needs.
struct Footprint {
    Bytes states;  // touched of states (of the arrays of a probe): a lower bound, flushes not counted
    Bytes others;  // touched of records, inputs and outputs
    Bytes pool;    // device memory of a set of buffers
};
Footprint footprint(const Case& c);

struct RotationLimits {
    Bytes l2;    // capacity of the L2
    Bytes pool;  // memory that a rotation may take so that records and inputs are cold too
};

// Sets of buffers that the launches rotate over; never fewer than two. Before a set comes again, the launches
// between have touched at least 320 MB and four times the L2 of states, and twice the L2 of records, inputs
// and outputs: kernels read states evict-first, and what a cache is asked to forget first does not displace
// the rest. The second rule yields to the limit of the pool. One set for warm rows and the empty kernel.
int rotation_sets(const Case& c, const RotationLimits& limits);

// Rotations over all sets until the append probe writes to a place again: each writes the next record of the
// rings and another output, so that the second rule holds with sets that the pool has room for. At most
// kAppendRecords; other kernels come back to what they wrote with every rotation.
int rotations_to_repeat(const Case& c, const RotationLimits& limits);

// Cases of one group use the same device pools, and follow each other.
bool same_group(const Case& a, const Case& b);
std::vector<std::span<const Case>> groups(std::span<const Case> cases);

// The order in which the `count` cases of a group are measured: shuffled, so that what a launch finds of heat
// and power does not go with the batch.
std::vector<std::size_t> measuring_order(std::size_t count, std::uint64_t seed);

}  // namespace kvsim::calibrate
