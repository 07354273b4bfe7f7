#include "sim/serving/serve.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/engine/event_queue.hpp"
#include "sim/serving/router.hpp"

namespace kvsim {
namespace {

struct Arrives {};
struct StepEnds {
    std::size_t replica = 0;
};
using Event = std::variant<Arrives, StepEnds>;

// When all events of an instant are done, replicas that have no step look for one, in their order.
enum class Phase : std::uint8_t {
    kStepEnds,  // first: frees memory and slots, which the others may ask for
    kArrives,   // then: joins the queue before anybody looks at it
};

// The time integral of the number of requests in the system, for Little's law. Sums wrap modulo 2^64: they
// are only ever compared with sums that wrap alike.
class Integral {
  public:
    void advance(Time now) {
        sum_ += static_cast<std::uint64_t>((now - last_).value()) * static_cast<std::uint64_t>(level_);
        last_ = now;
    }
    void add(std::int64_t change) { level_ += change; }
    std::int64_t level() const { return level_; }
    std::uint64_t sum() const { return sum_; }

  private:
    Time last_;
    std::int64_t level_ = 0;
    std::uint64_t sum_ = 0;
};

struct Lane {
    Replica replica;
    StepPrice price{};  // of the step under way
    bool stepping = false;
    bool woken = false;  // is in Server::woken_
};

// Work that outlasts the range of time is the user's to cut.
void check_range(Time now, Time step) {
    constexpr Time kEnd(std::numeric_limits<std::int64_t>::max());
    if (step <= kEnd - now) return;
    throw_mistake({}, "workload",
                  "expected a run within 106 days, the range of simulated time, got one that does not end by "
                  "then; `horizon` ends it");
}

class Server {
  public:
    Server(const ServeSpec& spec, ArrivalSource& arrivals, const StepPricer& pricer, Collector& collector);

    RunResult run();

  private:
    void handle(Arrives);
    void handle(StepEnds ends);
    void expect_arrival();
    void dispatch();
    void take_in(std::size_t replica, RequestNumber number, const Arrival& arrival,
                 const PromptBlocks& blocks = {});
    void wake(std::size_t replica);
    void start_steps();
    RunResult finish(Time end, bool all_done);

    const ServeSpec& spec_;
    ArrivalSource& arrivals_;
    const StepPricer& pricer_;
    Collector& collector_;
    Router router_;
    std::vector<Lane> lanes_;
    std::vector<std::size_t> woken_;  // replicas of which something has changed in this instant
    EventQueue<Event, Phase> events_;
    std::optional<Arrival> expected_;  // whose event is pending
    RequestNumber arrived_ = 0;
    struct Held {
        RequestNumber number = 0;
        Arrival arrival;
    };
    std::deque<Held> shared_queue_;
    Integral in_system_;
};

Server::Server(const ServeSpec& spec, ArrivalSource& arrivals, const StepPricer& pricer, Collector& collector)
    : spec_(spec),
      arrivals_(arrivals),
      pricer_(pricer),
      collector_(collector),
      router_(spec.router, static_cast<std::size_t>(spec.replicas)) {
    KVSIM_CHECK(spec.replicas >= 1, "{} replicas", spec.replicas);
    lanes_.reserve(static_cast<std::size_t>(spec.replicas));
    for (int i = 0; i < spec.replicas; ++i)
        lanes_.push_back(Lane{Replica(spec.replica, spec.make_rows(), collector)});
}

RunResult Server::run() {
    expect_arrival();
    while (!events_.empty() && (!spec_.horizon || events_.next_time() <= *spec_.horizon)) {
        const auto event = events_.pop();
        in_system_.advance(event.time);
        std::visit([this](const auto& payload) { handle(payload); }, event.payload);
        if (events_.empty() || events_.next_time() > event.time) start_steps();
    }
    const bool all_done = events_.empty();
    const Time end = all_done ? events_.now() : *spec_.horizon;
    in_system_.advance(end);
    return finish(end, all_done);
}

// Arrivals are asked for one at a time, so that a run of any length needs no list of them.
void Server::expect_arrival() {
    if (expected_) return;
    expected_ = arrivals_.next();
    if (expected_) events_.push(expected_->time, Phase::kArrives, Arrives{});
}

void Server::handle(Arrives) {
    const Arrival arrival = *expected_;
    expected_.reset();
    const RequestNumber number = arrived_++;
    collector_.arrived(arrival.time, arrival.prompt_tokens, arrival.output_tokens);
    if (const std::optional<Limit> limit = lanes_.front().replica.refuses(arrival)) {  // replicas are alike
        collector_.rejected(*limit);
        arrivals_.left(events_.now());
    } else {
        in_system_.add(1);
        if (spec_.shared_queue) {
            shared_queue_.push_back({number, arrival});
            dispatch();
        } else {
            const auto load = [this](std::size_t i) { return lanes_[i].replica.in_system(); };
            take_in(router_.pick(load), number, arrival, {arrivals_.blocks(), arrivals_.block_tokens()});
        }
    }
    expect_arrival();
}

// Whoever is idle takes the head of the shared queue.
void Server::dispatch() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        if (shared_queue_.empty()) return;
        if (lanes_[i].replica.in_system() > 0) continue;
        take_in(i, shared_queue_.front().number, shared_queue_.front().arrival);
        shared_queue_.pop_front();
    }
}

void Server::take_in(std::size_t replica, RequestNumber number, const Arrival& arrival,
                     const PromptBlocks& blocks) {
    lanes_[replica].replica.arrive(number, arrival, blocks);
    wake(replica);
}

void Server::wake(std::size_t replica) {
    if (lanes_[replica].woken) return;
    lanes_[replica].woken = true;
    woken_.push_back(replica);
}

void Server::handle(StepEnds ends) {
    Lane& lane = lanes_[ends.replica];
    lane.stepping = false;
    wake(ends.replica);
    const std::int64_t left = lane.replica.end_step(events_.now(), lane.price);
    in_system_.add(-left);
    if (left == 0) return;
    for (std::int64_t i = 0; i < left; ++i) arrivals_.left(events_.now());
    if (spec_.shared_queue) dispatch();
    expect_arrival();
}

void Server::start_steps() {
    if (woken_.size() > 1) std::sort(woken_.begin(), woken_.end());
    for (const std::size_t i : woken_) {
        Lane& lane = lanes_[i];
        lane.woken = false;
        if (lane.stepping) continue;  // it looks when its step ends
        const StepShape* shape = lane.replica.begin_step(events_.now());
        if (shape == nullptr) continue;
        lane.price = pricer_.price(*shape);
        lane.stepping = true;
        check_range(events_.now(), lane.price.time);
        events_.push_after(lane.price.time, Phase::kStepEnds, StepEnds{i});
    }
    woken_.clear();
}

// Invariants 1, 8 and 9: nobody is lost, tokens add up, and Little's law holds to the picosecond.
RunResult Server::finish(Time end, bool all_done) {
    std::int64_t here = static_cast<std::int64_t>(shared_queue_.size());
    std::int64_t tokens = 0;
    std::uint64_t sojourns = 0;
    for (const Held& held : shared_queue_)
        sojourns += static_cast<std::uint64_t>((end - held.arrival.time).value());
    for (const Lane& lane : lanes_) {
        here += lane.replica.in_system();
        tokens += lane.replica.tokens_received();
        sojourns += lane.replica.sojourns(end);
    }
    KVSIM_CHECK(here == in_system_.level() && here == collector_.in_system() && (!all_done || here == 0),
                "{} requests in the system, {} counted, {} known to the collector", here, in_system_.level(),
                collector_.in_system());
    KVSIM_CHECK(tokens == collector_.generated_tokens(), "{} tokens generated, {} received",
                collector_.generated_tokens(), tokens);
    KVSIM_CHECK(sojourns == in_system_.sum(), "sojourns of {} ps, area under N(t) of {} ps (modulo 2^64)",
                sojourns, in_system_.sum());
    const ArrivalCounts counts = arrivals_.counts();
    KVSIM_CHECK(!all_done || counts.read == counts.dropped + static_cast<std::int64_t>(arrived_),
                "{} requests read, {} dropped, {} arrived", counts.read, counts.dropped, arrived_);
    RunResult result = collector_.take({end, counts.read, counts.dropped, counts.inversions, counts.clamped},
                                       spec_.replicas);
    if (spec_.replica.prefix_cache) {
        result.prefix_cache.emplace();
        for (const Lane& lane : lanes_) *result.prefix_cache += *lane.replica.prefix_counts();
    }
    return result;
}

}  // namespace

RunResult serve(const ServeSpec& spec, ArrivalSource& arrivals, const StepPricer& pricer,
                Collector collector) {
    return Server(spec, arrivals, pricer, collector).run();
}

}  // namespace kvsim
