#include "sim/serving/serve.hpp"

#include <utility>
#include <variant>

#include "sim/base/check.hpp"
#include "sim/engine/event_queue.hpp"

namespace kvsim {
namespace {

struct Arrives {
    std::size_t request = 0;
};
struct StepEnds {};
struct Schedule {};
using Event = std::variant<Arrives, StepEnds, Schedule>;

enum class Phase : std::uint8_t {
    kStepEnds,  // first: frees memory and slots, which the others may ask for
    kArrives,   // then: joins the queue before anybody looks at it
    kSchedule,  // last: sees all that happened at this instant
};

// The time integral of the number of requests in the system, for Little's law. Sums wrap modulo 2^64: they
// are only ever compared with sums that wrap alike.
class Integral {
  public:
    void advance(Time now, std::int64_t level) {
        sum_ += static_cast<std::uint64_t>((now - last_).value()) * static_cast<std::uint64_t>(level);
        last_ = now;
    }
    std::uint64_t sum() const { return sum_; }

  private:
    Time last_;
    std::uint64_t sum_ = 0;
};

class Server {
  public:
    Server(const ArrivalList& list, const ReplicaLimits& limits, DecodeForm form, const StepPricer& pricer)
        : list_(list), replica_(list.arrivals, limits, std::move(form)), pricer_(pricer) {}

    ServeOutcome run(std::optional<Time> horizon);

  private:
    void handle(Arrives arrives);
    void handle(StepEnds);
    void handle(Schedule);
    void expect_arrival(std::size_t request);
    void wake();
    ServeOutcome finish(Time end, bool all_done);
    void count_requests(RunResult& result) const;
    void summarise_requests(RunResult& result) const;
    void check_requests(const RunResult& result, Time end, bool all_done) const;

    const ArrivalList& list_;
    Replica replica_;
    const StepPricer& pricer_;
    EventQueue<Event, Phase> events_;
    bool schedule_pending_ = false;
    bool stepping_ = false;
    StepShape shape_;  // of the step under way
    StepPrice price_;
    StepTotals totals_;
    Integral in_system_;
    RejectedBy rejected_by_;
};

ServeOutcome Server::run(std::optional<Time> horizon) {
    expect_arrival(0);
    while (!events_.empty() && (!horizon || events_.next_time() <= *horizon)) {
        const auto event = events_.pop();
        in_system_.advance(event.time, replica_.in_system());
        std::visit([this](const auto& payload) { handle(payload); }, event.payload);
    }
    const bool all_done = events_.empty();
    const Time end = all_done ? events_.now() : *horizon;
    in_system_.advance(end, replica_.in_system());
    return finish(end, all_done);
}

// Arrivals are handed to the queue one at a time, so that it stays small.
void Server::expect_arrival(std::size_t request) {
    if (request < list_.arrivals.size()) {
        events_.push(list_.arrivals[request].time, Phase::kArrives, Arrives{request});
    }
}

void Server::handle(Arrives arrives) {
    if (const std::optional<Limit> limit = replica_.arrive(arrives.request)) {
        rejected_by_.state_slots += *limit == Limit::kStateSlots ? 1 : 0;
        rejected_by_.kv_tokens += *limit == Limit::kKvTokens ? 1 : 0;
        rejected_by_.max_running += *limit == Limit::kMaxRunning ? 1 : 0;
    }
    expect_arrival(arrives.request + 1);
    wake();
}

void Server::handle(StepEnds) {
    totals_.add_step(shape_, price_, replica_.running());
    stepping_ = false;
    replica_.end_step(events_.now(), totals_);
    wake();
}

void Server::wake() {
    if (stepping_ || schedule_pending_) return;
    schedule_pending_ = true;
    events_.push(events_.now(), Phase::kSchedule, Schedule{});
}

void Server::handle(Schedule) {
    schedule_pending_ = false;
    const StepShape* shape = replica_.begin_step(events_.now());
    if (shape == nullptr) return;
    shape_ = *shape;
    price_ = pricer_.price(shape_);
    stepping_ = true;
    events_.push_after(price_.time, Phase::kStepEnds, StepEnds{});
}

ServeOutcome Server::finish(Time end, bool all_done) {
    ServeOutcome outcome;
    RunResult& result = outcome.result;
    count_requests(result);
    summarise_requests(result);
    totals_.write(result, end);
    check_requests(result, end, all_done);
    outcome.records = replica_.records();
    return outcome;
}

void Server::count_requests(RunResult& result) const {
    result.requests.read = list_.rows_read;
    result.requests.dropped = list_.dropped_zero_output;
    result.inversions = list_.inversions;
    result.clamped = list_.clamped;
    result.rejected_by = rejected_by_;
    for (const RequestRecord& record : replica_.records()) {
        switch (record.state) {
            case RequestState::kCompleted:
                ++result.requests.completed;
                break;
            case RequestState::kRejected:
                ++result.requests.rejected;
                break;
            default:
                ++result.requests.unfinished;
                break;
        }
    }
}

void Server::summarise_requests(RunResult& result) const {
    std::vector<double> prompts, outputs, ttft, tpot, e2e, queue;
    for (std::size_t i = 0; i < list_.arrivals.size(); ++i) {
        const Arrival& arrival = list_.arrivals[i];
        const RequestRecord& record = replica_.records()[i];
        prompts.push_back(static_cast<double>(arrival.prompt_tokens));
        outputs.push_back(static_cast<double>(arrival.output_tokens));
        if (record.state != RequestState::kCompleted) continue;
        queue.push_back(to_ms(record.admitted - arrival.time));
        ttft.push_back(to_ms(record.first_token - arrival.time));
        e2e.push_back(to_ms(record.finished - arrival.time));
        if (arrival.output_tokens == 1) {
            ++result.one_token_outputs;
        } else {
            tpot.push_back(to_ms(record.finished - record.first_token) /
                           static_cast<double>(arrival.output_tokens - 1));
        }
    }
    result.prompt_tokens = summarise(prompts);
    result.output_tokens = summarise(outputs);
    result.ttft_ms = summarise(ttft);
    result.tpot_ms = summarise(tpot);
    result.e2e_ms = summarise(e2e);
    result.queue_ms = summarise(queue);
}

// Invariants 1, 8 and 9: nobody is lost, tokens add up, and Little's law holds to the picosecond.
void Server::check_requests(const RunResult& result, Time end, bool all_done) const {
    const RequestCounts& n = result.requests;
    KVSIM_CHECK(n.read == n.completed + n.rejected + n.dropped + n.unfinished,
                "{} requests read, {} completed, {} rejected, {} dropped, {} unfinished", n.read, n.completed,
                n.rejected, n.dropped, n.unfinished);
    KVSIM_CHECK(!all_done || (n.unfinished == 0 && replica_.in_system() == 0),
                "{} requests left in an empty system", n.unfinished);
    std::int64_t tokens = 0;
    std::uint64_t sojourns = 0;
    for (std::size_t i = 0; i < list_.arrivals.size(); ++i) {
        const RequestRecord& record = replica_.records()[i];
        tokens += replica_.tokens_of(i);
        if (record.state == RequestState::kExpected || record.state == RequestState::kRejected) continue;
        const Time left = record.state == RequestState::kCompleted ? record.finished : end;
        sojourns += static_cast<std::uint64_t>((left - list_.arrivals[i].time).value());
    }
    KVSIM_CHECK(tokens == result.generated_tokens, "{} tokens generated, {} received",
                result.generated_tokens, tokens);
    KVSIM_CHECK(sojourns == in_system_.sum(), "sojourns of {} ps, area under N(t) of {} ps (modulo 2^64)",
                sojourns, in_system_.sum());
}

}  // namespace

ServeOutcome serve(const ArrivalList& list, const ReplicaLimits& limits, DecodeForm form,
                   const StepPricer& pricer, std::optional<Time> horizon) {
    return Server(list, limits, std::move(form), pricer).run(horizon);
}

}  // namespace kvsim
