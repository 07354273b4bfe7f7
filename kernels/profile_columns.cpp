#include "kernels/profile_columns.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace kvsim {
namespace {

template <class Number>
bool parse_number(std::string_view text, std::optional<Number>& value) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stop != end) return false;
    value = number;
    return true;
}

// Six digits: a relative step of at most 5e-6, far below the noise of a measurement.
std::string format_value(double value) {
    return fmt::format("{:.6g}", value);
}
std::string format_value(std::int64_t value) {
    return fmt::format("{}", value);
}
std::string format_value(bool value) {
    return value ? "true" : "false";
}
std::string format_value(L2State value) {
    return std::string(kL2StateNames[static_cast<std::size_t>(value)]);
}
std::string format_value(ClockLimit value) {
    return std::string(kClockLimitNames[static_cast<std::size_t>(value)]);
}
template <class Enum>
std::string format_value(Enum value) {
    return std::string(name(value));
}

bool parse_value(std::string_view text, std::optional<std::int64_t>& value) {
    return parse_number(text, value);
}
bool parse_value(std::string_view text, std::optional<double>& value) {
    return parse_number(text, value) && std::isfinite(*value);
}
bool parse_value(std::string_view text, std::optional<bool>& value) {
    if (text != "true" && text != "false") return false;
    value = text == "true";
    return true;
}
bool parse_value(std::string_view text, std::optional<Family>& value) {
    value = enum_from_name<Family>(kFamilyNames, text);
    return value.has_value();
}
bool parse_value(std::string_view text, std::optional<Form>& value) {
    value = enum_from_name<Form>(kFormNames, text);
    return value.has_value();
}
bool parse_value(std::string_view text, std::optional<StateFormat>& value) {
    value = enum_from_name<StateFormat>(kStateFormatNames, text);
    return value.has_value();
}
bool parse_value(std::string_view text, std::optional<RecordFormat>& value) {
    value = enum_from_name<RecordFormat>(kRecordFormatNames, text);
    return value.has_value();
}
bool parse_value(std::string_view text, std::optional<ClockLimit>& value) {
    value = enum_from_name<ClockLimit>(kClockLimitNames, text);
    return value.has_value();
}
bool parse_value(std::string_view text, std::optional<L2State>& value) {
    value = enum_from_name<L2State>(kL2StateNames, text);
    return value.has_value();
}

// A column that holds one optional member of the row; an empty cell is an empty member.
template <auto Member>
constexpr ProfileColumn column(std::string_view column_name, std::string_view help) {
    return {column_name, help,
            [](const ProfileRow& row) { return row.*Member ? format_value(*(row.*Member)) : std::string(); },
            [](ProfileRow& row, std::string_view text) {
                (row.*Member).reset();
                return text.empty() || parse_value(text, row.*Member);
            }};
}

constexpr ProfileColumn kKernelColumn{"kernel", "kernel that was launched; also the name of the file",
                                      [](const ProfileRow& row) { return row.kernel; },
                                      [](ProfileRow& row, std::string_view text) {
                                          row.kernel = text;
                                          return !text.empty();
                                      }};

using Row = ProfileRow;
constexpr std::array kColumns{
    kKernelColumn,
    column<&Row::family>("family", "family of the linear-attention layer: gdn, kda, mamba2, lightning"),
    column<&Row::form>("form", "recurrent, buffered, direct, verify_stored, verify_buffered"),
    column<&Row::k_heads>("k_heads", "key heads"),
    column<&Row::v_heads>("v_heads", "value heads"),
    column<&Row::k_dim>("k_dim", "channels of a key head"),
    column<&Row::v_dim>("v_dim", "channels of a value head"),
    column<&Row::state_dtype>("state_dtype", "format of the state: fp32, bf16, fp16, split"),
    column<&Row::records>("records", "format of u in a ring's records: bf16, fp32_u"),
    column<&Row::batch>("batch", "rows (requests) of the launch"),
    column<&Row::buffer_length>("buffer_length", "records that a ring can hold"),
    column<&Row::fill>("fill", "records that every row reads; empty when rows are in mixed phases"),
    column<&Row::buffered_tokens>("buffered_tokens", "records read, summed over rows"),
    column<&Row::flush_rows>("flush_rows", "rows that fold their ring into the state"),
    column<&Row::tokens>("tokens", "new tokens per row"),
    column<&Row::bytes>("bytes", "bytes read plus bytes written by a stream probe"),
    column<&Row::l2>("l2",
                     "cold: launches rotate over more data than the L2 holds; warm: one set again and again"),
    column<&Row::sets>("sets", "sets of buffers that the launches rotate over"),
    column<&Row::time_us>("time_us", "us per launch in a single-stream CUDA graph, median of the replays"),
    column<&Row::time_min_us>("time_min_us", "us, fastest replay that counts"),
    column<&Row::time_max_us>("time_max_us", "us, slowest replay that counts"),
    column<&Row::repeats>("repeats", "graph replays that count"),
    column<&Row::launches>("launches", "launches per graph"),
    column<&Row::cupti_us>("cupti_us", "us, kernel duration from CUPTI activity records, median"),
    column<&Row::dram_read_bytes>("dram_read_bytes", "bytes read from DRAM per launch, hardware counter"),
    column<&Row::dram_write_bytes>("dram_write_bytes", "bytes written to DRAM per launch, hardware counter"),
    column<&Row::sm_mhz>("sm_mhz", "lowest SM clock during the timed replays, MHz"),
    column<&Row::clock_limit>("clock_limit", "what held the clocks down during them: none, power, slowdown"),
    column<&Row::verified>("verified",
                           "true: the output was equal to the reference before timing; false: not timed"),
    column<&Row::max_error>("max_error", "largest relative L2 error of a compared output row"),
};

}  // namespace

std::span<const ProfileColumn> profile_columns() {
    return kColumns;
}

}  // namespace kvsim
