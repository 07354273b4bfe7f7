#include "tests/sim/policies/followed_rows.hpp"

#include <algorithm>
#include <numeric>

namespace kvsim {

// The last of those steps of the cycle in which the fewest rows flush.
std::int64_t FollowedRows::emptiest_step() const {
    std::int64_t best = 0;
    std::int64_t fewest = 0;
    for (std::int64_t left = 1; left <= parts_.buffer_length; ++left) {
        const auto rows = std::ranges::count(rows_, left, &Row::steps_left);
        if (best == 0 || rows <= fewest) {
            best = left;
            fewest = rows;
        }
    }
    return best;
}

void FollowedRows::join(int number) {
    rows_.push_back({number, 0, policy_ == "staggered" ? emptiest_step() : parts_.buffer_length});
}

void FollowedRows::leave(int number) {
    rows_.erase(std::ranges::find(rows_, number, &Row::number));
}

bool FollowedRows::cycle_ends(std::int64_t step) {
    if (cycle_left_ == 0) {
        const std::int64_t m = parts_.buffer_length;
        cycle_left_ = m - (step % m + m) % m;  // cycles begin at multiples of m
    }
    if (--cycle_left_ > 0) return false;
    cycle_left_ = parts_.buffer_length;
    return true;
}

std::vector<std::size_t> FollowedRows::longest_waiting(const FlushConditions& conditions) const {
    const auto rows = static_cast<std::int64_t>(rows_.size());
    const std::int64_t m = parts_.buffer_length;
    std::int64_t most = parts_.spec.most_per_step > 0 ? parts_.spec.most_per_step : (rows + m - 1) / m;
    if (policy_ == "deferred_under_load" && conditions.waiting == 0 && conditions.memory_used < 0.9)
        most = rows;
    // Which of several rows of the same age flushes first is the policy's to say: the one that joined the
    // cycle first, and rows_ is kept in that order.
    std::vector<std::size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return rows_[i].records; });
    std::vector<std::size_t> chosen;
    for (const std::size_t i : order) {
        const bool due = rows_[i].records >= m;
        const bool full = rows_[i].records >= parts_.ring;
        if (full || (due && static_cast<std::int64_t>(chosen.size()) < most)) chosen.push_back(i);
    }
    return chosen;
}

std::vector<std::size_t> FollowedRows::flushing(std::int64_t step, const FlushConditions& conditions) {
    if (policy_.starts_with("deferred")) return longest_waiting(conditions);
    std::vector<std::size_t> chosen;
    const bool all = policy_ == "aligned" && cycle_ends(step);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (all || (knows_its_step() && rows_[i].steps_left == 0)) chosen.push_back(i);
    }
    return chosen;
}

LinearWork FollowedRows::step(std::int64_t step, const FlushConditions& conditions) {
    LinearWork work;
    for (Row& row : rows_) {
        ++work.sequences;
        ++work.new_tokens;
        work.buffered_tokens += row.records;
        ++row.records;
        --row.steps_left;
    }
    std::vector<Row> flushed;
    for (const std::size_t i : flushing(step, conditions)) {
        ++work.flushes;
        work.flushed_tokens += rows_[i].records;
        flushed.push_back({rows_[i].number, 0, parts_.buffer_length});
    }
    for (const Row& row : flushed) {
        leave(row.number);
        rows_.push_back(row);
    }
    return work;
}

void FollowedRows::fold(std::int64_t step) {
    if (policy_ == "aligned") cycle_ends(step);
    for (Row& row : rows_) {
        row.records = 0;
        if (--row.steps_left == 0) row.steps_left = parts_.buffer_length;
    }
}

std::int64_t FollowedRows::buffered_tokens() const {
    std::int64_t sum = 0;
    for (const Row& row : rows_) sum += row.records;
    return sum;
}

std::int64_t FollowedRows::most_records() const {
    return rows_.empty() ? 0 : std::ranges::max(rows_, {}, &Row::records).records;
}

}  // namespace kvsim
