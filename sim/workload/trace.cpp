// Makes arrivals of the rows of a trace.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/base/file.hpp"
#include "sim/base/random.hpp"
#include "sim/workload/synthetic.hpp"
#include "sim/workload/trace_rows.hpp"

namespace kvsim {

void TraceMistakes::add(int line, std::size_t column, std::string message) {
    constexpr std::size_t kMaxListed = 20;
    constexpr std::size_t kMaxLength = 240;
    // What a file of another kind holds is nothing for a terminal.
    for (char& c : message) c = c < ' ' || c == '\x7f' ? '?' : c;
    if (message.size() > kMaxLength) message = message.substr(0, kMaxLength) + "...";
    if (listed_.size() < kMaxListed) {
        listed_.push_back({{file_, line, static_cast<int>(column)}, "", std::move(message)});
    } else {
        ++unlisted_;
    }
}

void TraceMistakes::throw_if_any() {
    if (listed_.empty()) return;
    if (unlisted_ > 0) {
        Mistake rest;
        rest.place.file = file_;
        rest.message = fmt::format("{} more mistakes", unlisted_);
        listed_.push_back(std::move(rest));
    }
    throw ConfigError(std::move(listed_));
}

namespace {

bool is_json(std::span<const std::string_view> lines) {
    return !lines.empty() && lines.front().find_first_not_of(" \t") == lines.front().find('{') &&
           !lines.front().empty();
}

TraceRows read_rows(const TraceWorkload& trace, TraceMistakes& mistakes) {
    const std::string text = read_regular_file(trace.path);
    std::vector<std::string_view> lines = split_lines(text);
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    if (lines.empty()) mistakes.add(1, 1, "expected a header and rows, or JSON lines, got an empty file");
    mistakes.throw_if_any();
    const auto limit =
        static_cast<std::size_t>(trace.limit.value_or(std::numeric_limits<std::int64_t>::max()));
    TraceRows rows =
        is_json(lines) ? read_json_rows(lines, limit, mistakes) : read_csv_rows(lines, limit, mistakes);
    mistakes.throw_if_any();
    return rows;
}

// Sorts stably by stamp; the rows that came before their predecessor.
std::int64_t sort_rows(std::vector<TraceRow>& rows) {
    std::int64_t inversions = 0;
    for (std::size_t i = 1; i < rows.size(); ++i) inversions += rows[i].stamp < rows[i - 1].stamp ? 1 : 0;
    const auto earlier = [](const TraceRow& a, const TraceRow& b) { return a.stamp < b.stamp; };
    if (inversions > 0) std::stable_sort(rows.begin(), rows.end(), earlier);
    return inversions;
}

// Times since the first row, which are sorted.
std::vector<Time> elapsed(const std::vector<TraceRow>& rows, TraceMistakes& mistakes) {
    std::vector<Time> times;
    times.reserve(rows.size());
    for (const TraceRow& row : rows) {
        const std::optional<Time> time = difference(row.stamp, rows.front().stamp);
        if (!time) {
            mistakes.add(row.line, 1,
                         "more than 106 days after the first row, which is beyond the simulated time");
        }
        times.push_back(time.value_or(Time()));
    }
    mistakes.throw_if_any();
    return times;
}

// Moves each row by a random part of the smallest difference between two stamps, and sorts again.
void spread_rows(std::vector<TraceRow>& rows, std::vector<Time>& times, std::uint64_t seed) {
    Time resolution;
    for (std::size_t i = 1; i < times.size(); ++i) {
        const Time gap = times[i] - times[i - 1];
        if (gap > Time() && (resolution == Time() || gap < resolution)) resolution = gap;
    }
    RandomStream random(seed, "spread");
    for (Time& time : times)
        time += Time(static_cast<std::int64_t>(random.uniform() * static_cast<double>(resolution.value())));
    std::vector<std::size_t> order(rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return times[i]; });
    std::vector<TraceRow> sorted_rows;
    std::vector<Time> sorted_times;
    for (const std::size_t i : order) {
        sorted_rows.push_back(rows[i]);
        sorted_times.push_back(times[i] - times[order.front()]);
    }
    rows = std::move(sorted_rows);
    times = std::move(sorted_times);
}

void scale_times(std::vector<Time>& times, double speed) {
    if (speed == 1.0 || times.empty()) return;
    constexpr double kEnd = 9e6;  // seconds; the range of time is 9.2e6
    if (to_seconds(times.back()) / speed > kEnd) {
        throw_mistake(
            {}, "workload.speed",
            fmt::format("expected arrivals within 104 days, the range of simulated time; a trace of "
                        "{:.1f} s is stretched beyond it",
                        to_seconds(times.back())));
    }
    for (Time& time : times) time = time_from_seconds(to_seconds(time) / speed);
}

// The hashes follow the arrivals, which the sort may have moved.
void add_blocks(ArrivalList& list, const TraceRows& trace, const TraceRow& row) {
    if (trace.block_tokens == 0) return;
    list.first_block.push_back(list.blocks.size());
    const auto first = trace.blocks.begin() + static_cast<std::ptrdiff_t>(row.first_block);
    list.blocks.insert(list.blocks.end(), first, first + row.blocks);
}

}  // namespace

ArrivalList read_trace(const TraceWorkload& workload, std::uint64_t seed) {
    KVSIM_CHECK(workload.speed > 0.0 && workload.limit.value_or(1) > 0, "speed {}, limit {}", workload.speed,
                workload.limit.value_or(1));
    TraceMistakes mistakes(workload.path);
    TraceRows trace = read_rows(workload, mistakes);
    std::vector<TraceRow>& rows = trace.rows;
    ArrivalList list;
    list.rows_read = static_cast<std::int64_t>(rows.size());
    list.inversions = sort_rows(rows);
    std::vector<Time> times = elapsed(rows, mistakes);
    if (workload.spread) spread_rows(rows, times, seed);
    scale_times(times, workload.speed);
    list.arrivals.reserve(rows.size());
    list.block_tokens = trace.block_tokens;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const TraceRow& row = rows[i];
        if (row.output_tokens == 0) {
            ++list.dropped_zero_output;
            continue;
        }
        Arrival arrival{times[i], row.prompt_tokens, row.output_tokens};
        declare(arrival, workload.declared, list.clamped);
        list.arrivals.push_back(arrival);
        add_blocks(list, trace, row);
    }
    return list;
}

}  // namespace kvsim
