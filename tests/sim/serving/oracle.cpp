#include "tests/sim/serving/oracle.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/random.hpp"
#include "sim/policies/speculation.hpp"
#include "sim/results/collector.hpp"

namespace kvsim {
namespace {

struct Request {
    std::size_t id = 0;
    Arrival arrival;
    std::int64_t declared = 0;
    std::int64_t generated = 0;
    std::int64_t target = 0;  // to prefill
    std::int64_t prefilled = 0;
    std::int64_t chunk = 0;    // tokens of its prompt in the step under way
    std::int64_t context = 0;  // of a decoding request: cached tokens
    std::int64_t fill = 0;     // records in its buffer
    std::uint64_t admission = 0;
    bool decoding = false;
    Time admitted, first_token, last_token, out_since;
    Time interference, preempted, flush;

    std::int64_t length() const { return arrival.prompt_tokens + declared; }
    std::int64_t left() const { return declared - generated; }
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// What a row does with its tokens and records, from the contract of the kernels alone.
class Rows {
  public:
    explicit Rows(const OracleSpec& spec)
        : spec_(spec),
          most_tokens_(1 + spec.speculation.most_drafts()),
          buffered_(spec.linear.form == Form::kBuffered &&
                    (spec.linear.buffer_length > 1 || most_tokens_ > 1)),
          draws_(stream_seed(spec.seed, "acceptance")) {
        if (most_tokens_ > 1) acceptance_.emplace(spec.speculation.acceptance);
        // Records with which a row may come: the buffer's, if the ring has room for the tokens beside them.
        most_records_ = std::max<std::int64_t>(spec.linear.buffer_length, most_tokens_);
        const std::int64_t ring = std::max(most_records_, 2 * most_tokens_);
        if (most_tokens_ > 1 && spec.draft_records == DraftRecords::kWithin)
            most_records_ = std::min(most_records_, ring - most_tokens_);
    }

    int drafts_for(std::int64_t rows) const {
        int drafts = spec_.speculation.table.empty() ? spec_.speculation.most_drafts() : 0;
        for (const auto& [batch, k] : spec_.speculation.table) drafts = batch <= rows ? k : drafts;
        return drafts;
    }
    Form form(std::int64_t tokens) const {
        if (tokens > 1) return buffered_ ? Form::kVerifyBuffered : Form::kVerifyStored;
        return buffered_ ? Form::kBuffered : Form::kRecurrent;
    }
    bool flushes(const Request& r, std::int64_t tokens) const {
        if (!buffered_) return false;
        return tokens == 1 ? r.fill + 1 >= most_records_ : r.fill + tokens > most_records_;
    }
    std::int64_t folded(const Request& r, std::int64_t tokens) const {
        return tokens == 1 ? r.fill + 1 : r.fill;
    }
    // Of the step's tokens, those that the request keeps.
    std::int64_t yield(const Request& r, std::int64_t tokens) const {
        if (tokens == 1) return 1;
        const std::uint64_t stream = numbered_bits(draws_, r.id + 1);
        const std::int32_t uniform =
            Acceptance::uniform(numbered_bits(stream, static_cast<std::uint64_t>(r.context)));
        const std::int64_t kept = acceptance_->draw(static_cast<int>(tokens) - 1, r.context, uniform);
        return std::min(kept + 1, r.arrival.output_tokens - r.generated);
    }
    void advance(Request& r, std::int64_t tokens, std::int64_t kept) const {
        const bool flushed = flushes(r, tokens);
        if (buffered_) r.fill = (flushed ? 0 : r.fill) + (flushed && tokens == 1 ? 0 : kept);
        r.context += kept;
    }

  private:
    const OracleSpec& spec_;
    std::int64_t most_tokens_;
    bool buffered_;
    std::uint64_t draws_;
    std::optional<Acceptance> acceptance_;
    std::int64_t most_records_ = 0;
};

class OracleReplica {
  public:
    OracleReplica(const OracleSpec& spec, Collector& collector)
        : spec_(spec.replica), rows_(spec), collector_(collector), tokens_(1 + rows_.drafts_for(1)) {}

    std::size_t in_system() const { return waiting_.size() + running_.size(); }

    void arrive(std::size_t id, const Arrival& arrival) {
        Request r;
        r.id = id;
        r.arrival = arrival;
        r.declared = arrival.declared_tokens > 0 ? arrival.declared_tokens : arrival.output_tokens;
        r.target = arrival.prompt_tokens;
        waiting_.push_back(r);
    }

    StepShape begin_step(Time now) {
        now_ = now;
        StepShape shape;
        for (Request& r : running_) r.chunk = 0;
        decodes_ = false;
        if (spec_.scheduler.steps == StepRule::kMixed) {
            const bool preempted = make_room();
            add_decode(shape);
            add_prefill(shape, !preempted);
        } else {
            add_prefill(shape, true);
            if (shape.tokens() > 0) return shape;
            make_room();
            add_decode(shape);
        }
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
        for (Request& r : running_) {
            if (!r.decoding) continue;
            r.interference += lost;
            r.flush += flush;
            if (!decodes_) continue;
            const std::int64_t kept = rows_.yield(r, tokens_);
            rows_.advance(r, tokens_, kept);
            deliver(r, kept);
        }
        if (decodes_) tokens_ = 1 + shape.drafts;
        for (Request& r : running_) {
            if (r.chunk == 0) continue;
            r.prefilled += r.chunk;
            if (r.prefilled < r.target) continue;
            if (r.generated > 0) r.preempted += now_ - r.out_since;
            r.decoding = true;
            r.context = r.target;
            deliver(r, 1);
        }
        std::erase_if(running_, [](const Request& r) { return r.generated == r.arrival.output_tokens; });
    }

  private:
    std::int64_t pages(std::int64_t tokens) const { return ceil_div(tokens, spec_.pool.page_tokens); }
    std::int64_t units(std::int64_t page_count) const {
        return spec_.pool.units_per_request + page_count * spec_.pool.units_per_page;
    }
    bool declares() const { return spec_.scheduler.admission == AdmissionRule::kDeclared; }

    // Units in use, by counting what every running request holds, the tokens of a step that is being formed
    // included.
    std::int64_t units_used() const {
        std::int64_t used = 0;
        for (const Request& r : running_)
            used += units(pages(declares()   ? r.length() + spec_.drafts
                                : r.decoding ? r.context + (decodes_ ? tokens_ : 0)
                                             : r.target));
        return used;
    }

    double new_token_ratio() const {
        const SchedulerSpec& s = spec_.scheduler;
        const double decayed = (s.new_token_ratio - s.least_token_ratio) * static_cast<double>(ratio_steps_) /
                               static_cast<double>(s.ratio_steps);
        return std::max(s.new_token_ratio - decayed, s.least_token_ratio);
    }

    bool admits(const Request& r) const {
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
            for (const Request& other : running_) (other.decoding ? decoding : whole) += other.left();
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
        const auto take = [&](Request& r) {
            r.chunk = std::max<std::int64_t>(0, std::min(budget, r.target - r.prefilled));
            budget -= r.chunk;
        };
        for (Request& r : running_) {  // at most one is partly prefilled
            if (!r.decoding) take(r);
        }
        while (admitting && budget > 0 && !waiting_.empty() && admits(waiting_[head()])) {
            Request r = waiting_[head()];
            waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(head()));
            if (r.admission == 0) r.admitted = now_;
            r.admission = ++admissions_;
            take(r);
            running_.push_back(r);
        }
        for (const Request& r : running_) {
            if (r.chunk == 0) continue;
            ++shape.prefill.sequences;
            shape.prefill.new_tokens += r.chunk;
            shape.prefill.cached_tokens += r.prefilled;
            for (std::int64_t i = 0; i < r.chunk; ++i) shape.prefill.query_key_pairs += r.prefilled + i + 1;
            if (r.prefilled + r.chunk == r.target) ++shape.logit_rows;
        }
    }

    void add_decode(StepShape& shape) {
        LinearWork& work = shape[rows_.form(tokens_)];
        for (const Request& r : running_) {
            if (!r.decoding) continue;
            decodes_ = true;
            ++work.sequences;
            work.new_tokens += tokens_;
            work.buffered_tokens += r.fill;
            if (rows_.flushes(r, tokens_)) {
                ++work.flushes;
                work.flushed_tokens += rows_.folded(r, tokens_);
            }
            ++shape.decode.sequences;
            shape.decode.context_sum += r.context;
            shape.decode.context_max = std::max(shape.decode.context_max, r.context);
            shape.logit_rows += tokens_;
        }
        if (decodes_) shape.drafts = rows_.drafts_for(work.sequences);
    }

    bool make_room() {
        if (declares()) return false;
        bool preempted = false;
        for (;;) {
            std::int64_t needed = 0;
            for (const Request& r : running_)
                needed += r.decoding ? pages(r.context + tokens_) - pages(r.context) : 0;
            if (units_used() + needed * spec_.pool.units_per_page <= spec_.pool.units) return preempted;
            preempt();
            preempted = true;
        }
    }

    void preempt() {
        const auto gives_way = [this](const Request& a, const Request& b) {
            if (spec_.scheduler.victim == VictimRule::kFewestOutput) {
                if (a.generated != b.generated) return a.generated < b.generated;
                if (a.arrival.prompt_tokens != b.arrival.prompt_tokens)
                    return a.arrival.prompt_tokens > b.arrival.prompt_tokens;
            }
            return a.admission > b.admission;
        };
        const auto victim = std::min_element(running_.begin(), running_.end(), gives_way);
        Request r = *victim;
        running_.erase(victim);
        if (r.decoding) r.out_since = now_;
        r.decoding = false;
        r.target = r.arrival.prompt_tokens + r.generated;
        r.prefilled = 0;
        r.fill = 0;
        const bool first = spec_.scheduler.victim == VictimRule::kLastAdmitted;
        waiting_.insert(first ? waiting_.begin() : waiting_.end(), r);
        ratio_steps_ = 0;
        collector_.preempted();
    }

    void deliver(Request& r, std::int64_t tokens) {
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
    Rows rows_;
    Collector& collector_;
    std::int64_t tokens_;  // of every row in the next step
    Time now_;
    std::vector<Request> waiting_;
    std::vector<Request> running_;  // in the order of their latest admission
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
            ceil_div(a.prompt_tokens + declared + spec_.replica.drafts, pool.page_tokens);
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
        return collector_.take({end, static_cast<std::int64_t>(arrivals_.size()), 0, 0, 0}, spec_.replicas);
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
