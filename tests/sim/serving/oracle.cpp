#include "tests/sim/serving/oracle.hpp"

#include <algorithm>
#include <cmath>

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

class Oracle {
  public:
    Oracle(const std::vector<Arrival>& arrivals, const ReplicaSpec& spec, int m, const StepPricer& pricer)
        : arrivals_(arrivals), spec_(spec), m_(m), pricer_(pricer) {}

    RunResult run(std::optional<Time> horizon) {
        for (;;) {
            arrive_until(now_);
            const StepShape shape = next_step();
            if (shape.tokens() == 0) {
                ratio_steps_ = 0;
                if (next_ == arrivals_.size()) return result(now_);
                if (horizon && arrivals_[next_].time > *horizon) return stopped(*horizon);
                now_ = arrivals_[next_].time;
                continue;
            }
            const StepPrice price = pricer_.price(shape);
            if (horizon && now_ + price.time > *horizon) return stopped(*horizon);
            now_ += price.time;
            end_step(shape, price);
        }
    }

  private:
    RunResult result(Time end) {
        return collector_.take({end, static_cast<std::int64_t>(arrivals_.size()), 0, 0, 0});
    }
    RunResult stopped(Time horizon) {
        arrive_until(horizon);
        return result(horizon);
    }

    std::int64_t pages(std::int64_t tokens) const { return ceil_div(tokens, spec_.pool.page_tokens); }
    std::int64_t units(std::int64_t page_count) const {
        return spec_.pool.units_per_request + page_count * spec_.pool.units_per_page;
    }
    bool declares() const { return spec_.scheduler.admission == AdmissionRule::kDeclared; }

    void arrive_until(Time time) {
        for (; next_ < arrivals_.size() && arrivals_[next_].time <= time; ++next_) {
            Request r;
            r.id = next_;
            r.arrival = arrivals_[next_];
            r.declared = r.arrival.declared_tokens > 0 ? r.arrival.declared_tokens : r.arrival.output_tokens;
            r.target = r.arrival.prompt_tokens;
            collector_.arrived(r.arrival.time, r.arrival.prompt_tokens, r.arrival.output_tokens);
            if (spec_.pool.slots_per_request > spec_.pool.slots) {
                collector_.rejected(Limit::kStateSlots);
            } else if (units(pages(r.length())) > spec_.pool.units) {
                collector_.rejected(spec_.pool.unit_limit);
            } else if (spec_.max_running < 1) {
                collector_.rejected(Limit::kMaxRunning);
            } else {
                waiting_.push_back(r);
            }
        }
    }

    // Units in use, by counting what every running request holds, the token of a step that is being formed
    // included.
    std::int64_t units_used() const {
        std::int64_t used = 0;
        for (const Request& r : running_)
            used += units(pages(declares()   ? r.length()
                                : r.decoding ? r.context + (decodes_ ? 1 : 0)
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
        const std::int64_t held = units(pages(declares() ? r.length() : r.target));
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

    StepShape next_step() {
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
        return shape;
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
        LinearWork& work = shape[m_ == 1 ? Form::kRecurrent : Form::kBuffered];
        for (const Request& r : running_) {
            if (!r.decoding) continue;
            decodes_ = true;
            ++work.sequences;
            ++work.new_tokens;
            work.buffered_tokens += r.fill;
            if (m_ > 1 && r.fill + 1 == m_) {
                ++work.flushes;
                work.flushed_tokens += r.fill + 1;
            }
            ++shape.decode.sequences;
            shape.decode.context_sum += r.context;
            shape.decode.context_max = std::max(shape.decode.context_max, r.context);
            ++shape.logit_rows;
        }
    }

    bool make_room() {
        if (declares()) return false;
        bool preempted = false;
        for (;;) {
            std::int64_t needed = 0;
            for (const Request& r : running_)
                needed += r.decoding ? pages(r.context + 1) - pages(r.context) : 0;
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

    void end_step(const StepShape& shape, const StepPrice& price) {
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
            ++r.context;
            r.fill = r.fill + 1 == m_ ? 0 : r.fill + 1;
            token(r);
        }
        for (Request& r : running_) {
            if (r.chunk == 0) continue;
            r.prefilled += r.chunk;
            if (r.prefilled < r.target) continue;
            if (r.generated > 0) r.preempted += now_ - r.out_since;
            r.decoding = true;
            r.context = r.target;
            token(r);
        }
        std::erase_if(running_, [](const Request& r) { return r.generated == r.arrival.output_tokens; });
    }

    void token(Request& r) {
        collector_.tokens(1);
        if (++r.generated == 1) {
            r.first_token = now_;
        } else {
            collector_.gaps(now_ - r.last_token, 1, 1);
        }
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

    const std::vector<Arrival>& arrivals_;
    ReplicaSpec spec_;
    int m_;
    const StepPricer& pricer_;
    Collector collector_;
    Time now_;
    std::size_t next_ = 0;
    std::vector<Request> waiting_;
    std::vector<Request> running_;  // in the order of their latest admission
    std::uint64_t admissions_ = 0;
    std::int64_t ratio_steps_ = 0;
    bool decodes_ = false;
};

}  // namespace

RunResult run_oracle(const std::vector<Arrival>& arrivals, const ReplicaSpec& spec, int buffer_length,
                     const StepPricer& pricer, std::optional<Time> horizon) {
    return Oracle(arrivals, spec, buffer_length, pricer).run(horizon);
}

}  // namespace kvsim
