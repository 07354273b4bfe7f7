#include "sim/serving/replica.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/serving/victim.hpp"

namespace kvsim {
namespace {

std::int64_t declared_tokens(const Arrival& arrival) {
    return arrival.declared_tokens > 0 ? arrival.declared_tokens : arrival.output_tokens;
}

// time x part / whole, rounded down, without leaving 64 bits.
Time share_of(Time time, std::int64_t part, std::int64_t whole) {
    if (part == 0) return {};  // of most steps
    const std::int64_t ps = time.value();
    return Time(ps / whole * part + ps % whole * part / whole);
}

}  // namespace

Replica::Replica(const ReplicaSpec& spec, std::unique_ptr<DecodeRows> rows, Collector& collector)
    : spec_(spec),
      pool_(spec.pool),
      admission_(spec.scheduler, spec.drafts),
      rows_(std::move(rows)),
      collector_(collector),
      queue_(spec.scheduler.order) {
    KVSIM_CHECK(spec.step_tokens >= 1, "steps of {} tokens", spec.step_tokens);
    if (spec.prefix_cache) cache_.emplace(*spec.prefix_cache, spec.pool);
}

std::optional<Limit> Replica::refuses(const Arrival& arrival) const {
    const AdmissionRequest request{arrival.prompt_tokens, declared_tokens(arrival)};
    if (const std::optional<Limit> limit = pool_.refuses(admission_.most_tokens(request))) return limit;
    if (spec_.max_running < 1) return Limit::kMaxRunning;
    return std::nullopt;
}

void Replica::arrive(RequestNumber number, const Arrival& arrival, const PromptBlocks& blocks) {
    KVSIM_CHECK(arrival.prompt_tokens >= 1 && arrival.output_tokens >= 1 &&
                    arrival.output_tokens <= declared_tokens(arrival),
                "request {} of {} + {} tokens, {} declared", number, arrival.prompt_tokens,
                arrival.output_tokens, declared_tokens(arrival));
    InFlight request;
    request.number = number;
    request.prompt = arrival.prompt_tokens;
    request.output = arrival.output_tokens;
    request.declared = declared_tokens(arrival);
    request.target = request.prompt;
    request.arrived = arrival.time;
    const Slot slot = table_.add(request);
    if (cache_) cache_->arrive(slot, request.prompt, blocks.hashes, blocks.tokens);
    queue_.push_back(slot, request.prompt + request.declared);
    arrivals_sum_ += static_cast<std::uint64_t>(arrival.time.value());
}

AdmissionRequest Replica::asks(Slot slot) {
    const InFlight& r = table_[slot];
    const std::int64_t shared = cache_ ? cache_->look_up(slot, r.target - 1).shared_pages : 0;
    return {r.target, r.declared - r.generated, shared};
}

const StepShape* Replica::begin_step(Time now) {
    KVSIM_CHECK(!in_step_, "a step began at {} ps while another ran", now.value());
    shape_ = {};
    chunks_.clear();
    decodes_ = false;
    if (spec_.scheduler.steps == StepRule::kMixed) {
        const bool preempted = make_room(now);
        if (rows_->rows() > 0) form_decode();
        form_prefill(now, !preempted);
    } else {
        form_prefill(now, true);
        if (chunks_.empty() && rows_->rows() > 0) {
            make_room(now);
            form_decode();
        }
    }
    if (chunks_.empty() && !decodes_) {
        // Invariant 6: an idle replica holds nothing, so the head of the queue would be admitted.
        KVSIM_CHECK(in_system() == 0, "idle at {} ps with {} requests in the system", now.value(),
                    in_system());
        admission_.start_again();
        return nullptr;
    }
    if (!decodes_) shape_.drafts = rows_->drafts();
    in_step_ = true;
    return &shape_;
}

bool Replica::head_is_admitted() {
    return !queue_.empty() && running() < spec_.max_running && admission_.admits(pool_, asks(queue_.front()));
}

void Replica::admit(Slot slot, Time now) {
    InFlight& r = table_[slot];
    const AdmissionRequest request = asks(slot);
    r.pages = admission_.pages(pool_, request);
    pool_.admit(r.pages - request.shared_pages);
    if (cache_) {
        const PrefixCache::Hit& hit = cache_->look_up(slot, r.target - 1);
        r.prefilled = hit.tokens;
        r.branch = hit.known_tokens;
        shape_.state_copies += hit.tokens > 0 ? 1 : 0;
        cache_->enter(slot, r.target);
        cache_->fit(pool_);
    }
    admission_.admitted(request.left);
    waiting_tokens_ -= r.generated;
    if (r.admission == 0) r.admitted = now;
    r.admission = ++admissions_;
    r.state = RequestState::kPrefilling;
    r.place = static_cast<std::uint32_t>(running_.size());
    running_.push_back(slot);
    longest_ = std::max(longest_, r.target);
}

void Replica::form_prefill(Time now, bool admits) {
    if (!partial_ && queue_.empty()) return;
    std::int64_t budget = spec_.step_tokens - shape_.tokens();
    if (budget > 0 && partial_) {
        budget = take_chunk(*partial_, budget);
        partial_.reset();
    }
    while (admits && budget > 0 && head_is_admitted()) {
        const Slot slot = queue_.front();
        queue_.pop();
        admit(slot, now);
        budget = take_chunk(slot, budget);
    }
}

std::int64_t Replica::take_chunk(Slot slot, std::int64_t budget) {
    const InFlight& r = table_[slot];
    const std::int64_t tokens = chunk_tokens(r, budget);
    chunks_.push_back({slot, tokens});
    if (cache_) plan_snapshots(chunks_.back());
    PrefillShape& prefill = shape_.prefill;
    ++prefill.sequences;
    prefill.new_tokens += tokens;
    prefill.cached_tokens += r.prefilled;
    prefill.query_key_pairs += tokens * r.prefilled + tokens * (tokens + 1) / 2;
    // Only the last token of a prompt needs logits.
    if (r.prefilled + tokens < r.target) return 0;
    ++shape_.logit_rows;
    if (spec_.drafts > 0 && spec_.scheduler.steps == StepRule::kMixed) {
        DecodeAttentionShape& fresh = shape_.fresh;
        ++fresh.sequences;
        fresh.context_sum += r.target;
        fresh.context_max = std::max(fresh.context_max, r.target);
    }
    return budget - tokens;
}

std::int64_t Replica::chunk_tokens(const InFlight& r, std::int64_t budget) const {
    const std::int64_t left = r.target - r.prefilled;
    if (left <= budget) return left;
    if (!cache_) return budget;
    const std::int64_t end = (r.prefilled + budget) / cache_->interval() * cache_->interval();
    return end > r.prefilled ? end - r.prefilled : budget;
}

// That prefill part of one prompt and nothing else, from wherever it starts.
std::int64_t Replica::most_chunks(std::int64_t tokens) const {
    const std::int64_t budget = spec_.step_tokens;
    if (!cache_) return tokens / budget;
    const std::int64_t interval = cache_->interval();
    if (interval <= budget) return tokens / (budget - budget % interval) + 1;
    return (tokens / interval + 2) * ((interval + budget - 1) / budget);
}

// The state is up to date wherever prefill gets to, so that a snapshot costs a copy and folds nothing.
void Replica::plan_snapshots(Chunk& chunk) {
    const InFlight& r = table_[chunk.slot];
    const std::int64_t end = (r.prefilled + chunk.tokens) / cache_->interval() * cache_->interval();
    if (end <= r.prefilled || !cache_->has_room(pool_)) return;
    chunk.snapshot = end;
    if (r.branch > r.prefilled && r.branch < end) chunk.branch = r.branch;
    const int copies = chunk.branch > 0 ? 2 : 1;
    shape_.state_copies += copies;
    cache_->took_snapshots(copies);
}

void Replica::cache_prefix(const Chunk& chunk) {
    if (chunk.branch > 0) pool_.grow(-cache_->extend(chunk.slot, chunk.branch));
    if (chunk.snapshot > 0) pool_.grow(-cache_->extend(chunk.slot, chunk.snapshot));
    cache_->fit(pool_);
}

void Replica::form_decode() {
    pages_lent_ = admission_.grows() ? rows_->pages_needed() : 0;
    pool_.grow(pages_lent_);
    const std::int64_t copies = shape_.state_copies;
    rows_->form_step(shape_, {queue_.size(), pool_.used_share()});
    if (cache_) {
        cache_->took_snapshots(shape_.state_copies - copies);
        cache_->fit(pool_);
    }
    decodes_ = true;
}

bool Replica::make_room(Time now) {
    if (!admission_.grows()) return false;
    bool preempted = false;
    while (rows_->rows() > 0 && !pool_.can_grow(rows_->pages_needed())) {
        // Progress: whoever is alone fits, or it would have been refused.
        KVSIM_CHECK(running() > 1, "the only request at {} ps finds no room for {} pages", now.value(),
                    rows_->pages_needed());
        preempt(victim(), now);
        preempted = true;
    }
    return preempted;
}

std::int64_t Replica::generated(Slot slot) const {
    const InFlight& r = table_[slot];
    return r.generated + (r.state == RequestState::kDecoding ? rows_->yielded(slot) : 0);
}

Slot Replica::victim() const {
    const auto candidate = [this](Slot slot) {
        return VictimCandidate{generated(slot), table_[slot].prompt, table_[slot].admission};
    };
    Slot first = running_.front();
    for (const Slot slot : running_) {
        if (gives_way_before(spec_.scheduler.victim, candidate(slot), candidate(first))) first = slot;
    }
    return first;
}

void Replica::preempt(Slot slot, Time now) {
    InFlight& r = table_[slot];
    const std::int64_t left = r.declared - generated(slot);
    if (r.state == RequestState::kDecoding) {
        const std::int64_t buffered = rows_->buffered_tokens();
        const std::int64_t yielded = rows_->leave(slot);
        if (yielded > 0) r.last_token = decode_end_;
        r.generated += yielded;
        r.interference += prefill_clock_;
        r.flush += flush_clock_;
        r.preempted -= now;
        admission_.left_decode(left);
        give_way(slot, pool_.pages(r.target + yielded),
                 {r.target + yielded, buffered - rows_->buffered_tokens()});
    } else {
        if (partial_ == slot) partial_.reset();
        admission_.left_prefill(left);
        give_way(slot, r.pages, {r.prefilled, 0});
    }
    stop_running(slot);
    r.state = RequestState::kWaiting;
    r.target = r.prompt + r.generated;
    r.prefilled = 0;
    waiting_tokens_ += r.generated;
    if (waits_at_the_head(spec_.scheduler.victim)) {
        queue_.push_front(slot, r.prompt + r.declared);
    } else {
        queue_.push_back(slot, r.prompt + r.declared);
    }
    admission_.start_again();
    collector_.preempted();
}

// What others hold of its prefix stays with them, and the rest of it with the cache.
void Replica::release(Slot slot, std::int64_t pages) {
    pool_.release(pages - (cache_ ? cache_->leave(slot) : 0));
}

// A victim may leave what it has computed, if that fits beside those who stay and their next step: then it
// outlasts this step.
void Replica::give_way(Slot slot, std::int64_t pages, const Computed& computed) {
    if (!cache_ || !spec_.prefix_cache->at_preemption || computed.tokens <= cache_->path_tokens(slot))
        return release(slot, pages);
    const std::int64_t shared = cache_->shared_pages(slot);
    pool_.release(pages - shared);
    const std::int64_t wanted = pool_.pages(computed.tokens) - shared + rows_->pages_needed();
    const bool leaves = cache_->has_room(pool_, wanted);
    cache_->leave(slot, leaves ? computed.tokens : 0);
    if (!leaves) return;
    cache_->took_snapshots(1);
    ++shape_.state_copies;
    if (computed.records > 0) {
        ++shape_.folds.states;
        shape_.folds.records += computed.records;
    }
    cache_->fit(pool_);
}

void Replica::stop_running(Slot slot) {
    const std::uint32_t place = table_[slot].place;
    running_[place] = running_.back();
    table_[running_[place]].place = place;
    running_.pop_back();
}

std::int64_t Replica::end_step(Time now, const StepPrice& price) {
    KVSIM_CHECK(in_step_, "a step ended at {} ps that had not begun", now.value());
    in_step_ = false;
    collector_.step(shape_, price, running(), now);
    gaps_.clear();
    finished_.clear();
    run_clocks(price);
    std::int64_t tokens = decodes_ ? end_decode(now) : 0;
    tokens += end_prefill(now);
    report(tokens, now);
    check_books(tokens);
    return static_cast<std::int64_t>(finished_.size());
}

void Replica::run_clocks(const StepPrice& price) {
    const Time flush = decodes_ ? price.flush_time : Time();
    flush_clock_ += flush;
    prefill_clock_ += share_of(price.time - flush, shape_.prefill.new_tokens, shape_.tokens());
}

std::int64_t Replica::end_decode(Time now) {
    const std::int64_t tokens = rows_->end_step(now, gaps_, finished_);
    admission_.yielded(tokens);
    admission_.decode_step_ended();
    decode_end_ = now;
    if (admission_.grows()) pool_.grow(rows_->pages_grown() - pages_lent_);
    for (const Slot slot : finished_) {
        InFlight& r = table_[slot];
        r.interference += prefill_clock_;
        r.flush += flush_clock_;
        admission_.left_decode(r.declared - r.output);
        release(slot, admission_.grows() ? pool_.pages(r.prompt + r.output - 1) : r.pages);
    }
    return tokens;
}

std::int64_t Replica::end_prefill(Time now) {
    std::int64_t tokens = 0;
    for (const Chunk& chunk : chunks_) {
        InFlight& r = table_[chunk.slot];
        r.prefilled += chunk.tokens;
        if (cache_) cache_prefix(chunk);
        if (r.prefilled < r.target) {
            KVSIM_CHECK(!partial_, "two prompts are partly prefilled at {} ps", now.value());
            partial_ = chunk.slot;
            continue;
        }
        ++tokens;
        first_token_or_next(chunk.slot, now);
    }
    return tokens;
}

void Replica::first_token_or_next(Slot slot, Time now) {
    InFlight& r = table_[slot];
    if (r.generated == 0) {
        r.first_token = now;
    } else {  // computed again
        r.preempted += now;
        gaps_.push_back({now - r.last_token, 1, 1});
    }
    ++r.generated;
    r.last_token = now;
    admission_.prefilled(r.declared - r.generated);
    if (r.generated < r.output) {
        join(slot, now);
    } else {
        admission_.left_decode(r.declared - r.generated);
        release(slot, r.pages);
        finished_.push_back(slot);
    }
}

void Replica::join(Slot slot, Time now) {
    InFlight& r = table_[slot];
    r.state = RequestState::kDecoding;
    r.interference -= prefill_clock_;
    r.flush -= flush_clock_;
    rows_->join({slot, r.target, r.output - r.generated, now, r.number});
}

void Replica::report(std::int64_t tokens, Time now) {
    collector_.tokens(tokens);
    for (const TokenGap& gap : gaps_) collector_.gaps(gap.gap, gap.count, gap.tokens);
    for (const Slot slot : finished_) finish(slot, now);
}

void Replica::finish(Slot slot, Time now) {
    const InFlight& r = table_[slot];
    FinishedRequest done;
    done.arrived = r.arrived;
    done.queue = r.admitted - r.arrived;
    done.ttft = r.first_token - r.arrived;
    done.e2e = now - r.arrived;
    done.interference = r.interference;
    done.preempted = r.preempted;
    done.flush = r.flush;
    done.prompt_tokens = static_cast<std::uint32_t>(r.prompt);
    done.output_tokens = static_cast<std::uint32_t>(r.output);
    collector_.finished(done);
    past_sojourns_ += static_cast<std::uint64_t>(done.e2e.value());
    past_tokens_ += r.output;
    arrivals_sum_ -= static_cast<std::uint64_t>(r.arrived.value());
    stop_running(slot);
    if (cache_) cache_->forget(slot);
    table_.remove(slot);
}

// Invariants 2 to 4: memory and records belong to admitted requests, and none is left without them.
void Replica::check_books(std::int64_t tokens) {
    KVSIM_CHECK(pool_.requests() == running(), "{} requests hold memory, {} run", pool_.requests(),
                running());
    KVSIM_CHECK(in_system() == running() + queue_.size(), "{} requests, {} running, {} waiting", in_system(),
                running(), queue_.size());
    const std::int64_t rows = rows_->rows();
    const std::int64_t cached = rows_->context_sum();
    const std::int64_t shared = cache_ ? cache_->shared_tokens() : 0;
    const std::int64_t buffered = rows_->buffered_tokens();
    KVSIM_CHECK(rows <= running() && cached >= rows && (rows > 0 || cached == 0) &&
                    cached <= pool_.pages_held() * pool_.size().page_tokens + shared,
                "{} rows of {} tokens, {} requests with {} pages and {} tokens shared", rows, cached,
                running(), pool_.pages_held(), shared);
    KVSIM_CHECK(buffered >= 0 && (rows > 0 || buffered == 0), "{} records buffered by {} rows", buffered,
                rows);
    // Invariant 10: only the prefill of one long prompt takes steps without a token.
    idle_steps_ = tokens > 0 ? 0 : idle_steps_ + 1;
    KVSIM_CHECK(idle_steps_ == 0 || idle_steps_ <= most_chunks(longest_) + 3, "{} steps without a token",
                idle_steps_);
}

std::uint64_t Replica::sojourns(Time end) const {
    return past_sojourns_ +
           static_cast<std::uint64_t>(in_system()) * static_cast<std::uint64_t>(end.value()) - arrivals_sum_;
}

std::optional<PrefixCounts> Replica::prefix_counts() const {
    return cache_ ? std::optional(cache_->counts()) : std::nullopt;
}

std::int64_t Replica::tokens_received() const {
    std::int64_t tokens = past_tokens_ + waiting_tokens_;
    for (const Slot slot : running_) tokens += generated(slot);
    return tokens;
}

}  // namespace kvsim
