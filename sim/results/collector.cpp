#include "sim/results/collector.hpp"

#include <algorithm>

#include "sim/base/check.hpp"

namespace kvsim {
namespace {

constexpr double kMsPerPs = 1e-9;

bool meets(const SloSpec& slo, const FinishedRequest& r) {
    // An answer of one token has no TPOT to miss.
    return !(slo.ttft && r.ttft > *slo.ttft) && !(slo.e2e && r.e2e > *slo.e2e) &&
           !(slo.tpot && static_cast<WideSum>((r.e2e - r.ttft).value()) >
                             static_cast<WideSum>(slo.tpot->value()) * (r.output_tokens - 1));
}

// Sums of the parts of E2E.
class BreakdownSum {
  public:
    void add(const FinishedRequest& r) {
        ++requests_;
        queue_ += r.queue.value();
        ttft_ += r.ttft.value();
        e2e_ += r.e2e.value();
        interference_ += r.interference.value();
        preempted_ += r.preempted.value();
        flush_ += r.flush.value();
    }
    Breakdown mean() const {
        Breakdown b;
        b.requests = requests_;
        if (requests_ == 0) return b;
        const auto ms = [&](WideSum sum) {
            return static_cast<double>(sum) * kMsPerPs / static_cast<double>(requests_);
        };
        b.queue_ms = ms(queue_);
        b.prefill_ms = ms(ttft_ - queue_);
        b.decode_ms = ms(e2e_ - ttft_ - interference_ - preempted_ - flush_);
        b.interference_ms = ms(interference_);
        b.preempted_ms = ms(preempted_);
        b.flush_ms = ms(flush_);
        return b;
    }

  private:
    std::int64_t requests_ = 0;
    WideSum queue_ = 0, ttft_ = 0, e2e_ = 0, interference_ = 0, preempted_ = 0, flush_ = 0;
};

// Of requests that arrived after the warm-up, the 1 %, rounded up, with the largest E2E; of equal ones those
// that finished first. `e2e` holds theirs in any order.
Breakdown slowest(const FinishedRequests& requests, Time warmup, std::span<std::int64_t> e2e) {
    BreakdownSum sum;
    if (e2e.empty()) return sum.mean();
    const auto wanted = (e2e.size() + 99) / 100;
    const auto nth = e2e.begin() + static_cast<std::ptrdiff_t>(e2e.size() - wanted);
    std::nth_element(e2e.begin(), nth, e2e.end());
    const Time least(*nth);
    const auto above =
        static_cast<std::size_t>(std::count_if(nth, e2e.end(), [&](std::int64_t t) { return t > *nth; }));
    std::size_t equal = wanted - above;  // still to be taken
    for (const FinishedRequest& r : requests) {
        if (r.arrived < warmup || r.e2e < least || (r.e2e == least && equal == 0)) continue;
        if (r.e2e == least) --equal;
        sum.add(r);
    }
    return sum.mean();
}

}  // namespace

Collector::Collector(const SloSpec& slo, Time warmup) : slo_(slo), warmup_(warmup), warm_(warmup == Time()) {}

void Collector::arrived(Time now, std::int64_t prompt_tokens, std::int64_t output_tokens) {
    backlog_.arrival(now, in_system());
    ++arrived_;
    arrived_late_ += now >= warmup_ ? 1 : 0;
    prompts_.add(prompt_tokens, 1);
    outputs_.add(output_tokens, 1);
}

void Collector::rejected(Limit limit, std::int64_t count) {
    rejected_ += count;
    switch (limit) {
        case Limit::kStateSlots:
            rejected_by_.state_slots += count;
            return;
        case Limit::kKvTokens:
            rejected_by_.kv_tokens += count;
            return;
        case Limit::kMaxRunning:
            rejected_by_.max_running += count;
            return;
        case Limit::kBlocks:
            rejected_by_.blocks += count;
            return;
        case Limit::kBytes:
            rejected_by_.bytes += count;
            return;
        case Limit::kWeights:
            break;  // then nothing runs
    }
    KVSIM_CHECK(false, "a request rejected by {}", kLimitNames[static_cast<std::size_t>(limit)]);
}

void Collector::finished(const FinishedRequest& request) {
    const FinishedRequest& r = request;
    KVSIM_CHECK(r.queue >= Time() && r.ttft >= r.queue && r.e2e >= r.ttft && r.output_tokens >= 1,
                "queue {} ps, TTFT {} ps, E2E {} ps, {} tokens", r.queue.value(), r.ttft.value(),
                r.e2e.value(), r.output_tokens);
    KVSIM_CHECK(r.interference >= Time() && r.preempted >= Time() && r.flush >= Time() &&
                    r.interference + r.preempted + r.flush <= r.e2e - r.ttft,
                "decode of {} ps, of which interference {}, preempted {}, flush {}", (r.e2e - r.ttft).value(),
                r.interference.value(), r.preempted.value(), r.flush.value());
    finished_.push_back(r);
}

void Collector::step(const StepShape& shape, const StepPrice& price, std::int64_t running, Time now) {
    Time by_source;
    for (std::size_t i = 0; i < time_by_source_.size(); ++i) {
        by_source += price.time_by_source[i];
        time_by_source_[i] += price.time_by_source[i];
    }
    KVSIM_CHECK(price.time > Time() && by_source == price.time && price.linear_time >= Time() &&
                    price.linear_time <= price.time && price.flush_time >= Time() &&
                    price.flush_time <= price.time,
                "a step of {} ps, {} ps by source, {} ps of linear attention, {} ps of flushes",
                price.time.value(), by_source.value(), price.linear_time.value(), price.flush_time.value());
    std::int64_t signs = 0;  // of all at once: the loop runs in every step
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
        signs |= price.bytes[i].value();
        bytes_[i] += price.bytes[i];
    }
    KVSIM_CHECK(signs >= 0, "a step moved a negative number of bytes");
    for (const LinearWork& work : shape.linear) {
        linear_tokens_ += work.new_tokens;
        flushes_ += work.flushes;
    }
    flushes_ += shape.folds.states;
    ++steps_;
    busy_ += price.time;
    linear_time_ += price.linear_time;
    flush_time_ += price.flush_time;
    running_sum_ += running;
    warm_ = now >= warmup_;
}

void Collector::gaps(Time gap, std::int64_t count, std::int64_t tokens) {
    KVSIM_CHECK(tokens >= count, "{} tokens in {} deliveries", tokens, count);
    deliveries_ += count;
    delivered_ += tokens;
    if (!warm_ || count == 0) return;
    if (one_token_each_ && tokens > count) {
        one_token_each_ = false;
        token_gaps_ = gaps_;
    }
    gaps_.add(gap.value(), count);
    if (one_token_each_) return;
    const WideSum shared = tokens == count
                               ? WideSum{gap.value()}
                               : (static_cast<WideSum>(gap.value()) * count + tokens / 2) / tokens;
    token_gaps_.add(static_cast<std::int64_t>(shared), tokens);
}

void Collector::tokens(std::int64_t count) {
    generated_tokens_ += count;
    if (warm_) tokens_late_ += count;
}

RunResult Collector::take(const RunEnd& end, int replicas) {
    KVSIM_CHECK(to_seconds(busy_) <= to_seconds(end.simulated) * replicas * (1.0 + 1e-12),
                "busy for {} of {} ps on {} replicas", busy_.value(), end.simulated.value(), replicas);
    RunResult result;
    count_requests(result, end);
    sum_steps(result, end);
    sum_requests(result, end);
    result.finished = std::move(finished_);
    return result;
}

void Collector::count_requests(RunResult& result, const RunEnd& end) const {
    RequestCounts& n = result.requests;
    n.read = end.read;
    n.dropped = end.dropped;
    n.rejected = rejected_;
    n.completed = static_cast<std::int64_t>(finished_.size());
    n.unfinished = n.read - n.dropped - n.rejected - n.completed;
    KVSIM_CHECK(n.unfinished >= in_system() && in_system() >= 0,
                "{} requests read, {} completed, {} rejected, {} dropped, {} in the system", n.read,
                n.completed, n.rejected, n.dropped, in_system());
    result.rejected_by = rejected_by_;
    result.inversions = end.inversions;
    result.clamped = end.clamped;
    result.prompt_tokens = prompts_.summary(1.0);
    result.output_tokens = outputs_.summary(1.0);
    result.preemptions = preemptions_;
}

void Collector::sum_steps(RunResult& result, const RunEnd& end) const {
    result.itl_ms = gaps_.summary(kMsPerPs);
    result.itl_token_ms = one_token_each_ ? result.itl_ms : token_gaps_.summary(kMsPerPs);
    if (deliveries_ > 0)
        result.acceptance_length = static_cast<double>(delivered_) / static_cast<double>(deliveries_);
    result.generated_tokens = generated_tokens_;
    result.steps = steps_;
    result.simulated = end.simulated;
    result.busy = busy_;
    result.bytes = bytes_;
    result.time_by_source = time_by_source_;
    result.linear_time = linear_time_;
    result.flush_time = flush_time_;
    result.linear_tokens = linear_tokens_;
    result.flushes = flushes_;
    if (steps_ > 0) result.mean_batch = static_cast<double>(running_sum_) / static_cast<double>(steps_);
    if (end.simulated > warmup_)
        result.output_tokens_per_s = static_cast<double>(tokens_late_) / to_seconds(end.simulated - warmup_);
}

void Collector::sum_requests(RunResult& result, const RunEnd& end) const {
    std::vector<std::int64_t> ttft, queue, e2e;
    std::vector<double> tpot;
    for (std::vector<std::int64_t>* times : {&ttft, &queue, &e2e}) times->reserve(finished_.size());
    tpot.reserve(finished_.size());
    BreakdownSum sum;
    std::int64_t completed = 0;
    std::int64_t good = 0;
    for (const FinishedRequest& r : finished_) {
        completed += r.arrived + r.e2e >= warmup_ ? 1 : 0;
        if (r.arrived < warmup_) continue;
        sum.add(r);
        good += meets(slo_, r) ? 1 : 0;
        ttft.push_back(r.ttft.value());
        queue.push_back(r.queue.value());
        e2e.push_back(r.e2e.value());
        if (r.output_tokens == 1) {
            ++result.one_token_outputs;
        } else {
            tpot.push_back(to_ms(r.e2e - r.ttft) / static_cast<double>(r.output_tokens - 1));
        }
    }
    result.ttft_ms = summarise(ttft, kMsPerPs);
    result.queue_ms = summarise(queue, kMsPerPs);
    result.e2e_ms = summarise(e2e, kMsPerPs);
    result.tpot_ms = summarise(tpot);
    result.breakdown = sum.mean();
    result.slowest_breakdown = slowest(finished_, warmup_, e2e);
    const Breakdown& b = result.breakdown;
    result.stability = backlog_.test(time_from_seconds((b.e2e_ms() - b.queue_ms) * 1e-3));
    if (end.simulated <= warmup_) return;
    const double window = to_seconds(end.simulated - warmup_);
    result.requests_per_s = static_cast<double>(completed) / window;
    if (!slo_.ttft && !slo_.tpot && !slo_.e2e) return;
    result.goodput_per_s = static_cast<double>(good) / window;
    if (arrived_late_ > 0)
        result.slo_attainment = static_cast<double>(good) / static_cast<double>(arrived_late_);
}

}  // namespace kvsim
