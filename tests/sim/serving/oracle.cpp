#include "tests/sim/serving/oracle.hpp"

#include <algorithm>
#include <cmath>

#include "sim/results/collector.hpp"
#include "tests/sim/serving/oracle_cache.hpp"
#include "tests/sim/serving/oracle_rows.hpp"

namespace kvsim {
namespace {

class OracleReplica {
  public:
    OracleReplica(const OracleSpec& spec, Collector& collector)
        : spec_(spec.replica), rows_(spec), collector_(collector), tokens_(1 + rows_.drafts_for(1)) {
        if (spec_.prefix_cache) cache_.emplace(*spec_.prefix_cache, spec_.pool);
    }

    std::optional<PrefixCounts> prefix_counts() const {
        return cache_ ? std::optional(cache_->counts()) : std::nullopt;
    }

    std::size_t in_system() const { return waiting_.size() + running_.size(); }

    void arrive(std::size_t id, const Arrival& arrival) {
        OracleRequest r;
        r.id = id;
        r.arrival = arrival;
        r.declared = arrival.declared_tokens > 0 ? arrival.declared_tokens : arrival.output_tokens;
        r.target = arrival.prompt_tokens;
        waiting_.push_back(r);
    }

    StepShape begin_step(Time now) {
        now_ = now;
        StepShape shape;
        for (OracleRequest& r : running_) r.chunk = 0;
        decodes_ = false;
        if (spec_.scheduler.steps == StepRule::kMixed) {
            const bool preempted = make_room(shape);
            add_decode(shape);
            add_prefill(shape, !preempted);
        } else {
            add_prefill(shape, true);
            if (shape.tokens() == 0) {
                make_room(shape);
                add_decode(shape);
            }
        }
        if (!decodes_ && shape.tokens() > 0) shape.drafts = static_cast<int>(tokens_) - 1;
        if (shape.tokens() == 0) ratio_steps_ = 0;
        return shape;
    }

    void end_step(Time now, const StepShape& shape, const StepPrice& price) {
        now_ = now;
        collector_.step(shape, price, static_cast<std::int64_t>(running_.size()), now_);
        const Time flush = decodes_ ? price.flush_time : Time();
        const std::int64_t rest = (price.time - flush).value();  // small here: the product fits
        const Time lost(rest * shape.prefill.new_tokens / shape.tokens());
        if (decodes_) ++ratio_steps_;
        for (OracleRequest& r : running_) {
            if (!r.decoding) continue;
            r.interference += lost;
            r.flush += flush;
            if (!decodes_) continue;
            const std::int64_t kept = rows_.yield(r, tokens_);
            rows_.advance(r, tokens_, kept);
            deliver(r, kept);
        }
        if (decodes_) tokens_ = 1 + shape.drafts;
        for (OracleRequest& r : running_) {
            if (r.chunk == 0) continue;
            r.prefilled += r.chunk;
            if (r.prefilled < r.target) continue;
            if (r.generated > 0) r.preempted += now_ - r.out_since;
            r.decoding = true;
            r.context = r.target;
            deliver(r, 1);
        }
        std::erase_if(running_,
                      [](const OracleRequest& r) { return r.generated == r.arrival.output_tokens; });
    }

  private:
    std::int64_t pages(std::int64_t tokens) const { return oracle_ceil(tokens, spec_.pool.page_tokens); }
    std::int64_t units(std::int64_t page_count) const {
        return spec_.pool.units_per_request + page_count * spec_.pool.units_per_page;
    }
    bool declares() const { return spec_.scheduler.admission == AdmissionRule::kDeclared; }

    // Units in use, by counting what every running request holds, the tokens of a step that is being formed
    // included.
    std::int64_t units_used() const {
        std::int64_t used = 0;
        for (const OracleRequest& r : running_)
            used += units(pages(declares()   ? r.length() + spec_.drafts
                                : r.decoding ? r.context + (decodes_ ? tokens_ : 0)
                                             : r.target));
        return used;
    }

    OracleUse use() const { return {units_used(), static_cast<std::int64_t>(running_.size())}; }

    double new_token_ratio() const {
        const SchedulerSpec& s = spec_.scheduler;
        const double decayed = (s.new_token_ratio - s.least_token_ratio) * static_cast<double>(ratio_steps_) /
                               static_cast<double>(s.ratio_steps);
        return std::max(s.new_token_ratio - decayed, s.least_token_ratio);
    }

    bool admits(const OracleRequest& r) const {
        const auto count = static_cast<std::int64_t>(running_.size());
        if (count >= spec_.max_running) return false;
        if ((count + 1) * spec_.pool.slots_per_request > spec_.pool.slots) return false;
        const std::int64_t held = units(pages(declares() ? r.length() + spec_.drafts : r.target));
        if (count == 0) return held <= spec_.pool.units;
        auto spare = static_cast<std::int64_t>(
            std::floor(spec_.scheduler.watermark * static_cast<double>(spec_.pool.units)));
        if (spec_.scheduler.admission == AdmissionRule::kEstimated) {
            std::int64_t decoding = 0;
            std::int64_t whole = r.left();
            for (const OracleRequest& other : running_) (other.decoding ? decoding : whole) += other.left();
            const double estimate = std::ceil(new_token_ratio() * static_cast<double>(decoding));
            spare += pages(static_cast<std::int64_t>(estimate) + whole) * spec_.pool.units_per_page;
        }
        return units_used() + held + spare <= spec_.pool.units;
    }

    std::size_t head() const {
        std::size_t head = 0;
        if (spec_.scheduler.order == QueueOrder::kShortestFirst) {
            for (std::size_t i = 1; i < waiting_.size(); ++i) {
                if (waiting_[i].length() < waiting_[head].length()) head = i;
            }
        }
        return head;
    }

    void add_prefill(StepShape& shape, bool admitting) {
        std::int64_t budget = spec_.step_tokens - shape.tokens();
        for (OracleRequest& r : running_) {  // at most one is partly prefilled
            if (!r.decoding) take_chunk(r, budget, shape);
        }
        while (admitting && budget > 0 && !waiting_.empty() && admits(waiting_[head()])) {
            OracleRequest r = waiting_[head()];
            waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(head()));
            if (r.admission == 0) r.admitted = now_;
            r.admission = ++admissions_;
            if (cache_) r.prefilled = cache_->enter(r.id, r.target);
            shape.state_copies += r.prefilled > 0 ? 1 : 0;
            running_.push_back(r);
            if (cache_) cache_->fit(use());
            take_chunk(running_.back(), budget, shape);
        }
        for (const OracleRequest& r : running_) {
            if (r.chunk == 0) continue;
            ++shape.prefill.sequences;
            shape.prefill.new_tokens += r.chunk;
            shape.prefill.cached_tokens += r.prefilled;
            for (std::int64_t i = 0; i < r.chunk; ++i) shape.prefill.query_key_pairs += r.prefilled + i + 1;
            if (r.prefilled + r.chunk < r.target) continue;
            ++shape.logit_rows;
            if (spec_.drafts == 0 || spec_.scheduler.steps != StepRule::kMixed) continue;
            ++shape.fresh.sequences;
            shape.fresh.context_sum += r.target;
            shape.fresh.context_max = std::max(shape.fresh.context_max, r.target);
        }
    }

    // A chunk within a prompt ends at a multiple of the interval, if it gets to one, and fills its step. It
    // takes a snapshot at the last multiple that it gets to.
    void take_chunk(OracleRequest& r, std::int64_t& budget, StepShape& shape) {
        const std::int64_t left = r.target - r.prefilled;
        r.chunk = std::max<std::int64_t>(0, std::min(budget, left));
        if (!cache_ || r.chunk == 0) {
            budget -= r.chunk;
            return;
        }
        const std::int64_t multiple = (r.prefilled + r.chunk) / cache_->interval() * cache_->interval();
        const bool passes = multiple > r.prefilled;
        if (r.chunk < left && passes) r.chunk = multiple - r.prefilled;
        budget = r.chunk < left ? 0 : budget - r.chunk;
        if (passes && cache_->has_room(use(), 0)) {
            ++shape.state_copies;
            cache_->took_snapshot();
        }
    }

    void add_decode(StepShape& shape) {
        rows_.decide_flushes(running_, tokens_, loaded());
        LinearWork& work = shape[rows_.form(tokens_)];
        for (const OracleRequest& r : running_) {
            if (!r.decoding) continue;
            decodes_ = true;
            ++work.sequences;
            work.new_tokens += tokens_;
            work.buffered_tokens += r.fill;
            if (rows_.takes_snapshot(r)) {
                ++shape.state_copies;
                cache_->took_snapshot();
            }
            if (r.flushes) {
                ++work.flushes;
                work.flushed_tokens += rows_.folded(r, tokens_);
            }
            ++shape.decode.sequences;
            shape.decode.context_sum += r.context;
            shape.decode.context_max = std::max(shape.decode.context_max, r.context);
            shape.logit_rows += tokens_;
        }
        if (decodes_) shape.drafts = rows_.drafts_for(work.sequences);
        if (decodes_ && cache_) cache_->fit(use());
    }

    // Of the decode step that is being formed: requests wait, or nine tenths of slots or units are in use.
    bool loaded() const {
        const PoolSize& pool = spec_.pool;
        const auto share = [](std::int64_t used, std::int64_t of) {
            return of > 0 ? static_cast<double>(used) / static_cast<double>(of) : 0.0;
        };
        const auto count = static_cast<std::int64_t>(running_.size());
        const std::int64_t grown = declares() ? 0 : units_needed();
        return !waiting_.empty() || share(count * pool.slots_per_request, pool.slots) >= 0.9 ||
               share(units_used() + grown, pool.units) >= 0.9;
    }

    std::int64_t units_needed() const {
        std::int64_t needed = 0;
        for (const OracleRequest& r : running_)
            needed += r.decoding ? pages(r.context + tokens_) - pages(r.context) : 0;
        return needed * spec_.pool.units_per_page;
    }

    bool make_room(StepShape& shape) {
        if (declares()) return false;
        bool preempted = false;
        while (units_used() + units_needed() > spec_.pool.units) {
            preempt(shape);
            preempted = true;
        }
        return preempted;
    }

    // A victim leaves what it has computed, if this fits beside the others and their next step.
    void leave_tail(const OracleRequest& r, StepShape& shape) {
        const std::int64_t computed = r.decoding ? r.context : r.prefilled;
        OracleUse with_next = use();
        with_next.units += units_needed();
        if (computed == 0 || !cache_->has_room(with_next, pages(computed))) return;
        cache_->leave(r.id, computed);
        cache_->took_snapshot();
        cache_->fit(use());
        ++shape.state_copies;
        shape.folds.states += r.fill > 0 ? 1 : 0;
        shape.folds.records += r.fill;
    }

    void preempt(StepShape& shape) {
        const auto gives_way = [this](const OracleRequest& a, const OracleRequest& b) {
            if (spec_.scheduler.victim == VictimRule::kFewestOutput) {
                if (a.generated != b.generated) return a.generated < b.generated;
                if (a.arrival.prompt_tokens != b.arrival.prompt_tokens)
                    return a.arrival.prompt_tokens > b.arrival.prompt_tokens;
            }
            return a.admission > b.admission;
        };
        const auto victim = std::min_element(running_.begin(), running_.end(), gives_way);
        OracleRequest r = *victim;
        running_.erase(victim);
        if (cache_ && spec_.prefix_cache->at_preemption) leave_tail(r, shape);
        if (r.decoding) r.out_since = now_;
        r.decoding = false;
        r.snapshot = false;
        r.target = r.arrival.prompt_tokens + r.generated;
        r.prefilled = 0;
        r.fill = 0;
        const bool first = spec_.scheduler.victim == VictimRule::kLastAdmitted;
        waiting_.insert(first ? waiting_.begin() : waiting_.end(), r);
        ratio_steps_ = 0;
        collector_.preempted();
    }

    void deliver(OracleRequest& r, std::int64_t tokens) {
        collector_.tokens(tokens);
        if (r.generated == 0) {
            r.first_token = now_;
        } else {
            collector_.gaps(now_ - r.last_token, 1, tokens);
        }
        r.generated += tokens;
        r.last_token = now_;
        if (r.generated < r.arrival.output_tokens) return;
        FinishedRequest done;
        done.arrived = r.arrival.time;
        done.queue = r.admitted - r.arrival.time;
        done.ttft = r.first_token - r.arrival.time;
        done.e2e = now_ - r.arrival.time;
        done.interference = r.interference;
        done.preempted = r.preempted;
        done.flush = r.flush;
        done.prompt_tokens = static_cast<std::uint32_t>(r.arrival.prompt_tokens);
        done.output_tokens = static_cast<std::uint32_t>(r.arrival.output_tokens);
        collector_.finished(done);
    }

    ReplicaSpec spec_;
    OracleRows rows_;
    Collector& collector_;
    std::optional<OracleCache> cache_;
    std::int64_t tokens_;  // of every row in the next step
    Time now_;
    std::vector<OracleRequest> waiting_;
    std::vector<OracleRequest> running_;  // in the order of their latest admission
    std::uint64_t admissions_ = 0;
    std::int64_t ratio_steps_ = 0;
    bool decodes_ = false;
};

// Replicas, what goes to which, and the clock.
class Oracle {
  public:
    Oracle(const std::vector<Arrival>& arrivals, const OracleSpec& spec, const StepPricer& pricer)
        : arrivals_(arrivals), spec_(spec), pricer_(pricer) {
        for (int i = 0; i < spec.replicas; ++i)
            lanes_.push_back({OracleReplica(spec, collector_), {}, {}, {}});
    }

    RunResult run(std::optional<Time> horizon) {
        Time now;
        for (;;) {
            std::optional<Time> next;
            const auto consider = [&](Time time) { next = next ? std::min(*next, time) : time; };
            if (next_ < arrivals_.size()) consider(arrivals_[next_].time);
            for (const Lane& lane : lanes_) {
                if (lane.end) consider(*lane.end);
            }
            if (!next) return result(now);
            if (horizon && *next > *horizon) return result(*horizon);
            now = *next;
            for (Lane& lane : lanes_) {
                if (lane.end != now) continue;
                lane.end.reset();
                lane.replica.end_step(now, lane.shape, lane.price);
            }
            while (next_ < arrivals_.size() && arrivals_[next_].time == now) arrive();
            for (Lane& lane : lanes_) {
                if (!lane.end) start_step(lane, now);
            }
        }
    }

  private:
    struct Lane {
        OracleReplica replica;
        StepShape shape;
        StepPrice price;
        std::optional<Time> end;
    };

    std::optional<Limit> refuses(const Arrival& a) const {
        const PoolSize& pool = spec_.replica.pool;
        const std::int64_t declared = a.declared_tokens > 0 ? a.declared_tokens : a.output_tokens;
        const std::int64_t pages =
            oracle_ceil(a.prompt_tokens + declared + spec_.replica.drafts, pool.page_tokens);
        if (pool.slots_per_request > pool.slots) return Limit::kStateSlots;
        if (pool.units_per_request + pages * pool.units_per_page > pool.units) return pool.unit_limit;
        if (spec_.replica.max_running < 1) return Limit::kMaxRunning;
        return std::nullopt;
    }

    void arrive() {
        const std::size_t id = next_++;
        const Arrival& a = arrivals_[id];
        collector_.arrived(a.time, a.prompt_tokens, a.output_tokens);
        if (const std::optional<Limit> limit = refuses(a)) return collector_.rejected(*limit);
        std::size_t to = 0;
        if (spec_.router == RouterRule::kRoundRobin) {
            to = routed_++ % lanes_.size();
        } else {
            for (std::size_t i = 1; i < lanes_.size(); ++i) {
                if (lanes_[i].replica.in_system() < lanes_[to].replica.in_system()) to = i;
            }
        }
        lanes_[to].replica.arrive(id, a);
    }

    void start_step(Lane& lane, Time now) {
        lane.shape = lane.replica.begin_step(now);
        if (lane.shape.tokens() == 0) return;
        lane.price = pricer_.price(lane.shape);
        lane.end = now + lane.price.time;
    }

    RunResult result(Time end) {
        RunResult r =
            collector_.take({end, static_cast<std::int64_t>(arrivals_.size()), 0, 0, 0}, spec_.replicas);
        for (const Lane& lane : lanes_) {
            const std::optional<PrefixCounts> counts = lane.replica.prefix_counts();
            if (!counts) continue;
            if (!r.prefix_cache) r.prefix_cache.emplace();
            *r.prefix_cache += *counts;
        }
        return r;
    }

    const std::vector<Arrival>& arrivals_;
    const OracleSpec& spec_;
    const StepPricer& pricer_;
    Collector collector_;
    std::vector<Lane> lanes_;
    std::size_t next_ = 0;
    std::size_t routed_ = 0;
};

}  // namespace

RunResult run_oracle(const std::vector<Arrival>& arrivals, const OracleSpec& spec, const StepPricer& pricer,
                     std::optional<Time> horizon) {
    return Oracle(arrivals, spec, pricer).run(horizon);
}

}  // namespace kvsim
