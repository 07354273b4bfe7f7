#include "sim/serving/sampled_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/policies/speculation.hpp"
#include "sim/serving/ring_rule.hpp"
#include "sim/serving/speculative_times.hpp"

namespace kvsim {
namespace {

constexpr std::uint32_t kAbsent = std::numeric_limits<std::uint32_t>::max();

// Drafts kept need a rate, even where none is ever proposed.
AcceptanceSpec acceptance_of(const SpeculationSpec& spec) {
    return spec.most_drafts() > 0 ? spec.acceptance : AcceptanceSpec{.rates = {0.0}};
}

// Calls body(first, end) for blocks of rows so short that sums of their int32 stay within 32 bits, which
// vector instructions add fastest.
constexpr std::size_t kBlock = 4096;
constexpr std::int32_t kMostInBlockSums = std::numeric_limits<std::int32_t>::max() / kBlock;

template <class Body>
void for_blocks(std::size_t rows, Body body) {
    for (std::size_t first = 0; first < rows; first += kBlock) body(first, std::min(rows, first + kBlock));
}

class SampledRows final : public DecodeRows {
  public:
    // parts.linear.form: kVerifyStored or kVerifyBuffered.
    explicit SampledRows(const SampledRowsParts& parts);

    void join(const RowStart& row) override;
    std::int64_t leave(Slot slot) override;
    std::int64_t yielded(Slot slot) const override;
    std::int64_t rows() const override { return static_cast<std::int64_t>(slot_.size()); }
    std::int64_t context_sum() const override { return sums_.context; }
    std::int64_t pages_needed() const override { return rows() * step_.full_pages + sums_.part_pages; }
    std::int64_t buffered_tokens() const override { return sums_.buffered; }
    int drafts() const override { return step_.tokens - 1; }
    void form_step(StepShape& shape, const FlushConditions& conditions) override;
    std::int64_t end_step(Time now, std::vector<TokenGap>& gaps, std::vector<Slot>& finished) override;
    std::int64_t pages_grown() const override { return pages_grown_; }

  private:
    // What a step of T tokens per row does with a row.
    struct StepRule {
        int tokens = 1;
        std::int32_t flush_at = 0;   // records; of a flush policy that picks rows: none
        std::int32_t kept_fill = 0;  // after a flush, before the tokens kept: -1 where their record is folded
        // T tokens need T / page pages of every row, and one more of a row whose last page has less room than
        // the rest.
        std::int64_t full_pages = 0;
        std::int32_t part_room = 0;
    };
    // Over the rows, of the next step.
    struct Sums {
        std::int64_t context = 0;
        std::int64_t buffered = 0;
        std::int64_t flushes = 0;
        std::int64_t flushed = 0;
        std::int64_t part_pages = 0;
    };
    struct Fresh {  // has had its latest token by itself, not in the last step
        Slot slot = 0;
        Time last_token;
    };

    StepRule rule_of(int drafts) const;
    std::size_t index_of(Slot slot) const;
    void count(std::size_t i, std::int64_t sign);
    void remove(std::size_t i);
    void draw_tokens();
    void drop_decayed(int drafts);
    std::int64_t deliver_tokens();
    void add_gaps(Time now, std::int64_t tokens, std::vector<TokenGap>& gaps);
    void advance_pages(const StepRule& next);
    void advance_rings(const StepRule& next);
    void pick_flushes(const FlushConditions& conditions);
    void find_snapshots();

    Form verifies_;
    bool buffered_;
    RingRule ring_;
    std::int32_t page_;
    std::int32_t snapshot_interval_;  // tokens; 0: no snapshots
    Acceptance acceptance_;
    SpeculativeTimes times_;
    std::unique_ptr<RowFlushPolicy> flush_;  // null: rows flush when they are due
    std::unique_ptr<SpeculationPolicy> policy_;
    int most_drafts_;
    std::uint64_t seed_;  // of the stream `acceptance`

    // Rows, in no order; the same index in all of them.
    std::vector<std::uint64_t> request_;    // its number
    std::vector<std::uint64_t> stream_;     // of the request's draws
    std::vector<std::int32_t> context_;     // tokens in the KV cache
    std::vector<std::int32_t> remaining_;   // >= 1
    std::vector<std::int32_t> fill_;        // records in the ring; 0 without
    std::vector<std::int32_t> page_room_;   // entries that the last KV page still takes
    std::vector<std::int32_t> at_joining_;  // context
    std::vector<Slot> slot_;
    std::vector<std::uint32_t> index_of_slot_;  // or kAbsent

    StepRule step_;        // of the step that is formed, or comes next
    Sums sums_;            // under it
    int next_drafts_ = 0;  // proposed in the step that is formed
    bool in_step_ = false;
    std::vector<std::int32_t> uniform_;     // what decides on the drafts of the rows
    std::vector<float> decay_, power_;      // of the acceptance, where rates decay
    std::vector<std::int32_t> tokens_;      // that the rows yield in the step that ends
    std::vector<std::size_t> last_tokens_;  // rows whose last tokens are among these, ascending
    std::int64_t pages_grown_ = 0;
    Time last_end_;  // of the last step: latest token of every row that is not fresh
    std::vector<Fresh> fresh_;
    std::vector<Slot> snapshots_;  // rows of which the next step takes one
    // Rows that flush in the step that is formed, beside those that flush_at tells.
    std::vector<std::size_t> flushed_;
};

SampledRows::SampledRows(const SampledRowsParts& parts)
    : verifies_(parts.linear.form),
      buffered_(verifies_ == Form::kVerifyBuffered),
      ring_(parts.linear, parts.draft_records),
      page_(parts.page_tokens),
      snapshot_interval_(static_cast<std::int32_t>(parts.snapshot_interval)),
      acceptance_(acceptance_of(parts.speculation)),
      times_(verifies_, ring_, acceptance_, *parts.pricer),
      flush_(buffered_
                 ? make_row_flush_policy({parts.linear.buffer_length, ring_.capacity(), parts.linear.flush})
                 : nullptr),
      policy_(make_speculation_policy(parts.speculation, times_)),
      most_drafts_(parts.speculation.most_drafts()),
      seed_(stream_seed(parts.seed, "acceptance")) {
    KVSIM_CHECK(ring_.capacity() <= kMostInBlockSums, "a ring of {} records", ring_.capacity());
    step_ = rule_of(policy_->drafts(1, 1));
}

SampledRows::StepRule SampledRows::rule_of(int drafts) const {
    KVSIM_CHECK(drafts >= 0 && drafts <= most_drafts_, "{} drafts of at most {}", drafts, most_drafts_);
    StepRule rule;
    rule.tokens = 1 + drafts;
    // Without a ring no fill ever gets there.
    rule.flush_at =
        buffered_ && !flush_ ? ring_.flush_at(rule.tokens) : std::numeric_limits<std::int32_t>::max();
    rule.kept_fill = rule.tokens == 1 ? -1 : 0;
    rule.full_pages = rule.tokens / page_;
    rule.part_room = rule.tokens % page_;
    return rule;
}

std::size_t SampledRows::index_of(Slot slot) const {
    KVSIM_CHECK(slot < index_of_slot_.size() && index_of_slot_[slot] != kAbsent, "no row of slot {}", slot);
    return index_of_slot_[slot];
}

void SampledRows::join(const RowStart& row) {
    KVSIM_CHECK(!in_step_ && row.context >= 1 && row.remaining >= 1, "{} tokens in cache, {} to come",
                row.context, row.remaining);
    KVSIM_CHECK(row.context + row.remaining <= kMostRowTokens, "a request of {} tokens",
                row.context + row.remaining);
    if (row.slot >= index_of_slot_.size()) index_of_slot_.resize(row.slot + std::size_t{1}, kAbsent);
    KVSIM_CHECK(index_of_slot_[row.slot] == kAbsent, "slot {} has a row", row.slot);
    index_of_slot_[row.slot] = static_cast<std::uint32_t>(slot_.size());
    const auto context = static_cast<std::int32_t>(row.context);
    request_.push_back(row.request);
    stream_.push_back(numbered_bits(seed_, row.request + 1));
    context_.push_back(context);
    remaining_.push_back(static_cast<std::int32_t>(row.remaining));
    fill_.push_back(0);  // prefill leaves the state up to date
    page_room_.push_back(page_ - 1 - (context - 1) % page_);
    at_joining_.push_back(context);
    slot_.push_back(row.slot);
    if (row.last_token != last_end_) fresh_.push_back({row.slot, row.last_token});
    count(slot_.size() - 1, 1);
}

std::int64_t SampledRows::leave(Slot slot) {
    KVSIM_CHECK(!in_step_, "slot {} leaves within a step", slot);
    const std::int64_t tokens = yielded(slot);
    const std::size_t i = index_of(slot);
    count(i, -1);
    remove(i);
    std::erase_if(fresh_, [slot](const Fresh& row) { return row.slot == slot; });
    std::erase(snapshots_, slot);
    return tokens;
}

std::int64_t SampledRows::yielded(Slot slot) const {
    const std::size_t i = index_of(slot);
    return context_[i] - at_joining_[i];
}

void SampledRows::form_step(StepShape& shape, const FlushConditions& conditions) {
    KVSIM_CHECK(!in_step_ && rows() > 0, "a step of {} rows", rows());
    next_drafts_ = policy_->drafts(rows(), sums_.context / rows());
    const Form form = form_of_step(verifies_, step_.tokens);
    LinearWork& work = shape[form];
    work.sequences = rows();
    work.new_tokens = rows() * step_.tokens;
    work.buffered_tokens = sums_.buffered;
    work.flushes = sums_.flushes;
    work.flushed_tokens = sums_.flushed + (form == Form::kBuffered ? sums_.flushes : 0);
    shape.state_copies += static_cast<std::int64_t>(snapshots_.size());
    pick_flushes(conditions);
    work.flushes += static_cast<std::int64_t>(flushed_.size());
    for (const std::size_t i : flushed_) work.flushed_tokens += fill_[i] - step_.kept_fill;
    const std::int32_t longest = *std::max_element(context_.begin(), context_.end());
    shape.decode = {rows(), sums_.context, longest};
    shape.logit_rows += work.new_tokens;
    shape.drafts = next_drafts_;
    in_step_ = true;
}

// What a row has kept is known when its step has ended, so that the step after copies the state, at whatever
// token the row has come to: first it folds the records that the row comes with, as a flush that is due does.
void SampledRows::pick_flushes(const FlushConditions& conditions) {
    flushed_.clear();
    if (flush_)
        flush_->pick(
            {fill_, request_, ring_.flush_at(step_.tokens), ring_.full_at(step_.tokens), step_.tokens},
            conditions, flushed_);
    if (snapshots_.empty()) return;
    for (const Slot slot : snapshots_) {
        const std::size_t i = index_of(slot);
        if (fill_[i] > 0 && fill_[i] < step_.flush_at) flushed_.push_back(i);
    }
    std::ranges::sort(flushed_);
    flushed_.erase(std::ranges::unique(flushed_).begin(), flushed_.end());
}

// Rows that the step has brought to a multiple of the interval, or past it, and that go on.
void SampledRows::find_snapshots() {
    snapshots_.clear();
    if (snapshot_interval_ == 0) return;
    for (std::size_t i = 0; i < slot_.size(); ++i) {
        const std::int32_t before = context_[i] - tokens_[i];
        if (remaining_[i] > 0 && context_[i] / snapshot_interval_ > before / snapshot_interval_)
            snapshots_.push_back(slot_[i]);
    }
}

std::int64_t SampledRows::end_step(Time now, std::vector<TokenGap>& gaps, std::vector<Slot>& finished) {
    KVSIM_CHECK(in_step_, "a step ends that was not formed");
    in_step_ = false;
    draw_tokens();
    const std::int64_t tokens = deliver_tokens();
    add_gaps(now, tokens, gaps);
    last_end_ = now;
    const StepRule next = rule_of(next_drafts_);
    pages_grown_ = tokens;  // with pages of one token
    for (const std::size_t i : flushed_) fill_[i] = step_.kept_fill;
    find_snapshots();
    if (page_ > 1) advance_pages(next);
    if (buffered_) advance_rings(next);
    step_ = next;
    const std::size_t before = finished.size();
    for (auto i = last_tokens_.rbegin(); i != last_tokens_.rend(); ++i) {
        finished.push_back(slot_[*i]);
        count(*i, -1);
        remove(*i);
    }
    std::sort(finished.begin() + static_cast<std::ptrdiff_t>(before), finished.end());
    return tokens;
}

// Into tokens_: all of the step, less the drafts that the row does not keep.
//
// From here on the rows are gone through column by column, in loops that the compiler turns into vector
// instructions where it can: this is what a step's time goes into.
void SampledRows::draw_tokens() {
    const std::size_t n = slot_.size();
    uniform_.resize(n);
    const int drafts = step_.tokens - 1;
    tokens_.assign(n, step_.tokens);
    const std::uint64_t* const stream = stream_.data();
    const std::int32_t* const context = context_.data();
    std::int32_t* const uniform = uniform_.data();
    std::int32_t* const tokens = tokens_.data();
    if (drafts == 0) return;
    for (std::size_t i = 0; i < n; ++i)
        uniform[i] = Acceptance::uniform(numbered_bits(stream[i], static_cast<std::uint32_t>(context[i])));
    if (acceptance_.decays()) {
        drop_decayed(drafts);
        return;
    }
    for (const std::int32_t limit : acceptance_.limits().first(static_cast<std::size_t>(drafts))) {
        for (std::size_t i = 0; i < n; ++i) tokens[i] -= uniform[i] > limit ? 1 : 0;
    }
}

// The drafts that rows do not keep where rates decay with the context.
void SampledRows::drop_decayed(int drafts) {
    const std::size_t n = slot_.size();
    decay_.resize(n);
    power_.assign(n, 1.0F);
    const std::int32_t* const context = context_.data();
    const std::int32_t* const uniform = uniform_.data();
    std::int32_t* const tokens = tokens_.data();
    float* const decay = decay_.data();
    float* const power = power_.data();
    for (std::size_t i = 0; i < n; ++i) decay[i] = acceptance_.decay(context[i]);
    for (const float product : acceptance_.products().first(static_cast<std::size_t>(drafts))) {
        for (std::size_t i = 0; i < n; ++i) {
            power[i] *= decay[i];
            tokens[i] -= uniform[i] >= static_cast<std::int32_t>(product * power[i]) ? 1 : 0;
        }
    }
}

// No row yields more than it has to: cuts tokens_, moves the rows on by them, notes in last_tokens_ which are
// through; returns the sum.
std::int64_t SampledRows::deliver_tokens() {
    std::int32_t* const tokens = tokens_.data();
    std::int32_t* const context = context_.data();
    std::int32_t* const remaining = remaining_.data();
    std::int64_t total = 0;
    last_tokens_.clear();
    for_blocks(slot_.size(), [&](std::size_t first, std::size_t end) {
        std::int32_t sum = 0;
        std::int32_t through = 0;
        for (std::size_t i = first; i < end; ++i) {
            const std::int32_t yield = std::min(tokens[i], remaining[i]);
            tokens[i] = yield;
            context[i] += yield;
            remaining[i] -= yield;
            sum += yield;
            through += remaining[i] == 0 ? 1 : 0;
        }
        total += sum;
        for (std::size_t i = first; through > 0; ++i) {
            if (remaining[i] > 0) continue;
            last_tokens_.push_back(i);
            --through;
        }
    });
    sums_.context += total;
    return total;
}

// Rows had their latest token in the last step, but for the fresh ones.
void SampledRows::add_gaps(Time now, std::int64_t tokens, std::vector<TokenGap>& gaps) {
    TokenGap settled{now - last_end_, rows(), tokens};
    const std::size_t first = gaps.size();
    for (const Fresh& row : fresh_) {
        const Time gap = now - row.last_token;
        if (gaps.size() == first || gaps.back().gap != gap) gaps.push_back({gap, 0, 0});
        ++gaps.back().count;
        gaps.back().tokens += tokens_[index_of(row.slot)];
        --settled.count;
        settled.tokens -= tokens_[index_of(row.slot)];
    }
    if (settled.count > 0) gaps.push_back(settled);
    fresh_.clear();
}

void SampledRows::advance_pages(const StepRule& next) {
    const std::int32_t* const tokens = tokens_.data();
    std::int32_t* const room = page_room_.data();
    const std::int32_t page = page_;
    std::int64_t grown = 0;
    std::int64_t part_pages = 0;
    for_blocks(slot_.size(), [&](std::size_t first, std::size_t end) {
        for (std::size_t i = first; i < end; ++i) room[i] -= tokens[i];
        std::int32_t short_of_room = 0;
        for (int left = step_.tokens; left > 0; left -= page) {  // a further page per pass
            std::int32_t added = 0;
            short_of_room = 0;
            for (std::size_t i = first; i < end; ++i) {
                added += room[i] < 0 ? 1 : 0;
                room[i] += room[i] < 0 ? page : 0;
                short_of_room += room[i] < next.part_room ? 1 : 0;
            }
            grown += added;
        }
        part_pages += short_of_room;
    });
    pages_grown_ = grown;
    sums_.part_pages = part_pages;
}

void SampledRows::advance_rings(const StepRule& next) {
    const std::int32_t* const tokens = tokens_.data();
    std::int32_t* const fill = fill_.data();
    const StepRule step = step_;
    sums_.buffered = sums_.flushes = sums_.flushed = 0;
    for_blocks(slot_.size(), [&](std::size_t first, std::size_t end) {
        std::int32_t buffered = 0;
        std::int32_t flushes = 0;
        std::int32_t flushed = 0;
        for (std::size_t i = first; i < end; ++i) {
            const std::int32_t records = (fill[i] >= step.flush_at ? step.kept_fill : fill[i]) + tokens[i];
            fill[i] = records;
            buffered += records;
            flushes += records >= next.flush_at ? 1 : 0;
            flushed += records >= next.flush_at ? records : 0;
        }
        sums_.buffered += buffered;
        sums_.flushes += flushes;
        sums_.flushed += flushed;
    });
}

void SampledRows::count(std::size_t i, std::int64_t sign) {
    const bool flushes = fill_[i] >= step_.flush_at;
    sums_.context += sign * context_[i];
    sums_.buffered += sign * fill_[i];
    sums_.flushes += flushes ? sign : 0;
    sums_.flushed += flushes ? sign * fill_[i] : 0;
    sums_.part_pages += page_room_[i] < step_.part_room ? sign : 0;
}

// The last row takes its place.
void SampledRows::remove(std::size_t i) {
    index_of_slot_[slot_[i]] = kAbsent;
    if (i + 1 < slot_.size()) index_of_slot_[slot_.back()] = static_cast<std::uint32_t>(i);
    const auto drop = [i](auto& column) {
        column[i] = column.back();
        column.pop_back();
    };
    drop(request_);
    drop(stream_);
    drop(context_);
    drop(remaining_);
    drop(fill_);
    drop(page_room_);
    drop(at_joining_);
    drop(slot_);
}

}  // namespace

std::unique_ptr<DecodeRows> make_sampled_rows(const SampledRowsParts& parts) {
    KVSIM_CHECK(parts.pricer != nullptr && parts.page_tokens > 0 && parts.snapshot_interval >= 0 &&
                    parts.snapshot_interval <= kMostRowTokens,
                "pages of {} tokens, snapshots every {}", parts.page_tokens, parts.snapshot_interval);
    KVSIM_CHECK(parts.linear.drafts == parts.speculation.most_drafts(),
                "memory for {} drafts, speculation with {}", parts.linear.drafts,
                parts.speculation.most_drafts());
    const Form form = with_drafts(parts.linear.form, 1);
    if (form != Form::kVerifyStored && form != Form::kVerifyBuffered) {
        throw_mistake({}, "linear.form",
                      fmt::format("expected recurrent or buffered with speculation, got {}", name(form)));
    }
    if (parts.linear.choose_form || parts.linear.choose_length) {
        throw_mistake(
            {}, parts.linear.choose_form ? "linear.form" : "linear.buffer_length",
            "expected a value with speculation, got auto: its times are those of one token per row");
    }
    SampledRowsParts verifying = parts;
    verifying.linear.form = form;
    return std::make_unique<SampledRows>(verifying);
}

}  // namespace kvsim
