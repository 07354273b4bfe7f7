// The one definition of a profile row: kvcalib writes it, `kvsim fit`, `validate` and the figures read it.
// One CSV file per kernel under profiles/<gpu>/; the header line is column_names(); cells that do not apply
// are empty.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/shapes.hpp"

namespace kvsim {

inline constexpr int kProfileSchema = 2;

enum class L2State : std::uint8_t { kCold, kWarm };
inline constexpr std::array<std::string_view, 2> kL2StateNames{"cold", "warm"};

// What held the clocks down, worst last: nothing, the power limit, or a thermal or hardware slowdown.
enum class ClockLimit : std::uint8_t { kNone, kPower, kSlowdown };
inline constexpr std::array<std::string_view, 3> kClockLimitNames{"none", "power", "slowdown"};

// A measured launch. Times are per launch.
struct ProfileRow {
    std::string kernel;  // linear_<form>, stream_copy, stream_read, stream_append, empty
    std::optional<Family> family;
    std::optional<Form> form;
    std::optional<std::int64_t> k_heads, v_heads, k_dim, v_dim;
    std::optional<StateFormat> state_dtype;
    std::optional<RecordFormat> records;        // forms with a ring
    std::optional<std::int64_t> batch;          // rows of the launch
    std::optional<std::int64_t> buffer_length;  // capacity of the ring
    std::optional<std::int64_t> fill;  // records that every row reads; empty when rows differ (mixed phases)
    std::optional<std::int64_t> buffered_tokens;  // records read, summed over rows
    std::optional<std::int64_t> flush_rows;       // rows that flush
    std::optional<std::int64_t> tokens;           // new tokens per row (1 in decode, T in verify)
    std::optional<std::int64_t> bytes;            // stream probes: bytes read plus bytes written
    std::optional<L2State> l2;
    std::optional<std::int64_t> sets;  // of buffers that the launches rotate over
    std::optional<double> time_us;     // mean per launch of a single-stream CUDA graph, median of the repeats
    std::optional<double> time_min_us, time_max_us;
    std::optional<std::int64_t> repeats;   // graph replays that count
    std::optional<std::int64_t> launches;  // launches per graph
    std::optional<double> cupti_us;        // kernel duration from CUPTI activity records, median
    std::optional<std::int64_t> dram_read_bytes,
        dram_write_bytes;                   // counters per launch, from a pass of its own
    std::optional<std::int64_t> sm_mhz;     // lowest SM clock seen during the replays that count
    std::optional<ClockLimit> clock_limit;  // worst seen during them; empty when the driver does not say
    std::optional<bool> verified;           // output compared with the CPU reference before timing
    std::optional<double> max_error;        // largest relative L2 error of a verified row's output
};

// How one column is written and read. parse() returns false when the text is not a value of the column.
struct ProfileColumn {
    std::string_view name;
    std::string_view help;  // meaning and unit
    std::string (*format)(const ProfileRow&);
    bool (*parse)(ProfileRow&, std::string_view);
};

std::span<const ProfileColumn> profile_columns();

}  // namespace kvsim
