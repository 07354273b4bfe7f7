#include "tests/sim/serving/oracle.hpp"

#include <algorithm>
#include <deque>

namespace kvsim {
namespace {

struct Live {
    std::size_t id = 0;
    std::int64_t prompt = 0;
    std::int64_t output = 0;
    std::int64_t prefilled = 0;
    std::int64_t chunk = 0;  // tokens of its prompt in the step under way
    std::int64_t generated = 0;
    std::int64_t fill = 0;
    Time last_token;
};

class Oracle {
  public:
    Oracle(const std::vector<Arrival>& arrivals, const ReplicaLimits& limits, int m, const StepPricer& pricer)
        : arrivals_(arrivals), limits_(limits), m_(m), pricer_(pricer) {
        out_.records.resize(arrivals.size());
    }

    OracleOutcome run(std::optional<Time> horizon) {
        for (;;) {
            arrive_until(now_);
            StepShape shape = prefill_shape();
            if (shape.prefill.sequences == 0) {
                if (live_.empty()) {
                    if (next_ == arrivals_.size()) break;
                    if (horizon && arrivals_[next_].time > *horizon) return stopped(*horizon);
                    now_ = arrivals_[next_].time;
                    continue;
                }
                shape = decode_shape();
            }
            const StepPrice price = pricer_.price(shape);
            if (horizon && now_ + price.time > *horizon) return stopped(*horizon);
            now_ += price.time;
            account(shape, price);
            if (shape.prefill.sequences > 0) {
                end_prefill();
            } else {
                end_decode();
            }
        }
        out_.simulated = now_;
        return out_;
    }

  private:
    OracleOutcome stopped(Time horizon) {
        arrive_until(horizon);
        out_.simulated = horizon;
        return out_;
    }

    void arrive_until(Time time) {
        for (; next_ < arrivals_.size() && arrivals_[next_].time <= time; ++next_) {
            const Arrival& a = arrivals_[next_];
            const bool fits = a.prompt_tokens + a.output_tokens <= limits_.kv_tokens &&
                              limits_.slots_per_request <= limits_.state_slots && limits_.max_running >= 1;
            out_.records[next_].state = fits ? RequestState::kQueued : RequestState::kRejected;
            if (fits) queue_.push_back(next_);
        }
    }

    bool fits(std::size_t id) const {
        std::int64_t tokens = arrivals_[id].prompt_tokens + arrivals_[id].output_tokens;
        std::int64_t slots = limits_.slots_per_request;
        for (const Live& r : live_) {
            tokens += r.prompt + r.output;
            slots += limits_.slots_per_request;
        }
        return static_cast<std::int64_t>(live_.size()) < limits_.max_running && tokens <= limits_.kv_tokens &&
               slots <= limits_.state_slots;
    }

    StepShape prefill_shape() {
        StepShape shape;
        std::int64_t budget = limits_.chunked_prefill_tokens;
        for (Live& r : live_) {  // at most one is partly prefilled
            r.chunk = std::min(budget, r.prompt - r.prefilled);
            budget -= r.chunk;
        }
        while (budget > 0 && !queue_.empty() && fits(queue_.front())) {
            const std::size_t id = queue_.front();
            queue_.pop_front();
            out_.records[id].state = RequestState::kPrefilling;
            out_.records[id].admitted = now_;
            Live r;
            r.id = id;
            r.prompt = arrivals_[id].prompt_tokens;
            r.output = arrivals_[id].output_tokens;
            r.chunk = std::min(budget, r.prompt);
            budget -= r.chunk;
            live_.push_back(r);
        }
        for (const Live& r : live_) {
            if (r.chunk == 0) continue;
            ++shape.prefill.sequences;
            shape.prefill.new_tokens += r.chunk;
            shape.prefill.cached_tokens += r.prefilled;
            for (std::int64_t i = 0; i < r.chunk; ++i) shape.prefill.query_key_pairs += r.prefilled + i + 1;
            if (r.prefilled + r.chunk == r.prompt) ++shape.logit_rows;
        }
        return shape;
    }

    StepShape decode_shape() const {
        StepShape shape;
        LinearWork& work = shape[m_ == 1 ? Form::kRecurrent : Form::kBuffered];
        for (const Live& r : live_) {
            const std::int64_t cached = r.prompt + r.generated - 1;  // the last token is this step's own
            ++work.sequences;
            ++work.new_tokens;
            work.buffered_tokens += r.fill;
            if (m_ > 1 && r.fill + 1 == m_) {
                ++work.flushes;
                work.flushed_tokens += r.fill + 1;
            }
            ++shape.decode.sequences;
            shape.decode.context_sum += cached;
            shape.decode.context_max = std::max(shape.decode.context_max, cached);
            ++shape.logit_rows;
        }
        return shape;
    }

    void account(const StepShape& shape, const StepPrice& price) {
        ++out_.steps;
        out_.busy += price.time;
        for (std::size_t i = 0; i < out_.bytes.size(); ++i) out_.bytes[i] += price.bytes[i];
        for (const LinearWork& w : shape.linear) out_.flushes += w.flushes;
    }

    void token(Live& r) {
        ++out_.generated_tokens;
        if (++r.generated == 1) {
            out_.records[r.id].first_token = now_;
            out_.records[r.id].state = RequestState::kDecoding;
        } else {
            out_.gaps_ms.push_back(to_ms(now_ - r.last_token));
        }
        r.last_token = now_;
        if (r.generated == r.output) {
            out_.records[r.id].state = RequestState::kCompleted;
            out_.records[r.id].finished = now_;
        }
    }

    void end_prefill() {
        for (Live& r : live_) {
            if (r.chunk == 0) continue;
            r.prefilled += r.chunk;
            r.chunk = 0;
            if (r.prefilled == r.prompt) token(r);
        }
        remove_done();
    }

    void end_decode() {
        for (Live& r : live_) {
            r.fill = r.fill + 1 == m_ ? 0 : r.fill + 1;
            token(r);
        }
        remove_done();
    }

    void remove_done() {
        std::erase_if(live_, [](const Live& r) { return r.generated == r.output; });
    }

    const std::vector<Arrival>& arrivals_;
    ReplicaLimits limits_;
    int m_;
    const StepPricer& pricer_;
    OracleOutcome out_;
    Time now_;
    std::size_t next_ = 0;
    std::deque<std::size_t> queue_;
    std::vector<Live> live_;
};

}  // namespace

OracleOutcome run_oracle(const std::vector<Arrival>& arrivals, const ReplicaLimits& limits, int buffer_length,
                         const StepPricer& pricer, std::optional<Time> horizon) {
    return Oracle(arrivals, limits, buffer_length, pricer).run(horizon);
}

}  // namespace kvsim
