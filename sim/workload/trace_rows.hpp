// Rows of a trace file as its format gives them; trace.cpp makes arrivals of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/workload/stamp.hpp"

namespace kvsim {

// Lengths beyond this are slips of the pen; the bound keeps sums over any trace within 64 bits.
inline constexpr std::int64_t kMaxTraceTokens = 1'000'000'000;

struct TraceRow {
    Stamp stamp;
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    int line = 0;
    std::uint32_t blocks = 0;     // hashes
    std::size_t first_block = 0;  // in TraceRows::blocks
};

struct TraceRows {
    std::vector<TraceRow> rows;  // in the order of the file
    std::vector<std::uint64_t> blocks;
    std::int64_t block_tokens = 0;
};

// Mistakes of one file. More than 20 are counted, not listed: a file of another format would print itself.
class TraceMistakes {
  public:
    explicit TraceMistakes(const std::string& file) : file_(file) {}

    void add(int line, std::size_t column, std::string message);
    void throw_if_any();

  private:
    std::string file_;
    std::vector<Mistake> listed_;
    std::int64_t unlisted_ = 0;
};

// Lines without their ends, the header or first object first, of which at most `limit` rows are read.
// Mistakes are noted; rows count only without any.
TraceRows read_csv_rows(std::span<const std::string_view> lines, std::size_t limit, TraceMistakes& mistakes);
TraceRows read_json_rows(std::span<const std::string_view> lines, std::size_t limit, TraceMistakes& mistakes);

}  // namespace kvsim
