// Order, clock and limits of the event queue, and a queue of the M/D/1 kind whose every departure is known.
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/engine/event_queue.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

enum class Phase : std::uint8_t { kDepart, kArrive };
using Queue = EventQueue<int, Phase>;

TEST_CASE("events leave by time, then phase, then order of pushing") {
    Queue queue;
    queue.push(Time(20), Phase::kDepart, 5);
    queue.push(Time(10), Phase::kArrive, 2);
    queue.push(Time(10), Phase::kArrive, 3);
    queue.push(Time(10), Phase::kDepart, 1);
    queue.push(Time(10), Phase::kArrive, 4);
    for (int expected = 1; expected <= 5; ++expected) CHECK(queue.pop().payload == expected);
    CHECK(queue.empty());
}

TEST_CASE("order is total on random events with many ties") {
    RandomStream random(7, "event queue test");
    for (int round = 0; round < 50; ++round) {
        Queue queue;
        // Every event is pushed with its place in the order of pushing as payload; a fifth are popped in
        // between.
        std::vector<std::tuple<std::int64_t, Phase, int>> popped;
        int pushed = 0;
        const auto pop = [&] {
            const Queue::Event event = queue.pop();
            CHECK(queue.now() == event.time);
            popped.emplace_back(event.time.value(), event.phase, event.payload);
        };
        for (int i = 0; i < 300; ++i) {
            const auto delay = Time(static_cast<std::int64_t>(random.bits() % 6));
            queue.push_after(delay, random.bits() % 2 == 0 ? Phase::kDepart : Phase::kArrive, pushed++);
            if (random.bits() % 5 == 0) pop();
        }
        while (!queue.empty()) pop();
        REQUIRE(popped.size() == 300);
        for (std::size_t i = 1; i < popped.size(); ++i) {
            // Times never decrease. Of equal times, phase and then order of pushing decide, unless the later
            // one was pushed after the earlier one had left; pushing order is what tells that apart.
            CHECK(std::get<0>(popped[i - 1]) <= std::get<0>(popped[i]));
            const bool same_key = std::get<0>(popped[i - 1]) == std::get<0>(popped[i]) &&
                                  std::get<1>(popped[i - 1]) == std::get<1>(popped[i]);
            if (same_key) CHECK(std::get<2>(popped[i - 1]) < std::get<2>(popped[i]));
        }
    }
}

TEST_CASE("all events pushed before the first pop leave sorted") {
    RandomStream random(11, "event queue test");
    Queue queue;
    std::vector<std::tuple<std::int64_t, Phase, int>> keys;
    for (int i = 0; i < 1000; ++i) {
        const auto time = static_cast<std::int64_t>(random.bits() % 40);
        const Phase phase = random.bits() % 2 == 0 ? Phase::kDepart : Phase::kArrive;
        queue.push(Time(time), phase, i);
        keys.emplace_back(time, phase, i);
    }
    std::sort(keys.begin(), keys.end());
    for (const auto& [time, phase, payload] : keys) {
        CHECK(queue.next_time() == Time(time));
        const Queue::Event event = queue.pop();
        CHECK(event.time == Time(time));
        CHECK(event.phase == phase);
        CHECK(event.payload == payload);
    }
}

TEST_CASE("the clock never runs back and time never overflows") {
    Queue queue;
    queue.push(Time(100), Phase::kArrive, 0);
    queue.pop();
    CHECK_THROWS_AS(queue.push(Time(99), Phase::kArrive, 0), InvariantError);
    CHECK_NOTHROW(queue.push(Time(100), Phase::kArrive, 0));
    CHECK_THROWS_AS(queue.push_after(Time(-1), Phase::kArrive, 0), InvariantError);
    const std::int64_t end = std::numeric_limits<std::int64_t>::max();
    CHECK_NOTHROW(queue.push_after(Time(end - 100), Phase::kArrive, 0));
    CHECK_THROWS_AS(queue.push_after(Time(end - 99), Phase::kArrive, 0), InvariantError);
}

TEST_CASE("an empty queue has no next event") {
    Queue queue;
    CHECK_THROWS_AS(queue.pop(), InvariantError);
    CHECK_THROWS_AS(queue.next_time(), InvariantError);
}

TEST_CASE("a server with constant service follows the Lindley recursion to the picosecond") {
    // Arrivals a_i, service s: departure d_i = max(a_i, d_{i-1}) + s.
    constexpr Time kService(1000);
    RandomStream random(3, "event queue test");
    std::vector<Time> arrivals;
    Time last;
    for (int i = 0; i < 2000; ++i) {
        last += Time(static_cast<std::int64_t>(random.bits() % 2400));
        arrivals.push_back(last);
    }
    Queue queue;
    for (int i = 0; i < 2000; ++i) queue.push(arrivals[static_cast<std::size_t>(i)], Phase::kArrive, i);
    std::vector<Time> departures;
    int waiting = 0;
    bool busy = false;
    while (!queue.empty()) {
        if (queue.pop().phase == Phase::kDepart) {
            departures.push_back(queue.now());
            busy = false;
        } else {
            ++waiting;
        }
        if (!busy && waiting > 0) {
            --waiting;
            busy = true;
            queue.push_after(kService, Phase::kDepart, 0);
        }
    }
    REQUIRE(departures.size() == arrivals.size());
    Time previous;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
        previous = std::max(arrivals[i], previous) + kService;
        CHECK(departures[i] == previous);
    }
}

}  // namespace
}  // namespace kvsim
