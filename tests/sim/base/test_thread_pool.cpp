// Jobs on threads: every job once, results in order, the first error by index.
#include "sim/base/thread_pool.hpp"

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <string>

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("every index once, whatever the number of threads") {
    for (const int threads : {1, 2, 3, 16}) {
        for (const std::size_t count : {0, 1, 2, 1000}) {
            std::vector<std::atomic<int>> calls(count);
            parallel_for(count, threads, [&](std::size_t i) { ++calls[i]; });
            int once = 0;
            for (const auto& n : calls) once += n == 1;
            CHECK(once == static_cast<int>(count));
        }
    }
}

TEST_CASE("results come in the order of the indices, of types without a default too") {
    struct Square {
        explicit Square(std::size_t v) : value(v * v) {}
        std::size_t value;
    };
    const auto squares = parallel_map(100, 4, [](std::size_t i) { return Square(i); });
    REQUIRE(squares.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(squares[i].value == i * i);
}

TEST_CASE("jobs really run at the same time") {
    // Each of two jobs waits for the other: one thread alone would never end.
    std::barrier meeting(2);
    parallel_for(2, 2, [&](std::size_t) { meeting.arrive_and_wait(); });
    SUCCEED();
}

TEST_CASE("the error of the smallest index is thrown, after all jobs have run") {
    for (const int threads : {1, 4}) {
        std::atomic<int> calls = 0;
        std::string message;
        try {
            parallel_for(50, threads, [&](std::size_t i) {
                ++calls;
                if (i == 40 || i == 7 || i == 8) throw std::runtime_error("job " + std::to_string(i));
            });
        } catch (const std::runtime_error& error) {
            message = error.what();
        }
        CHECK(message == "job 7");
        CHECK(calls == 50);
    }
}

TEST_CASE("no threads is a fault of ours") {
    CHECK_THROWS_AS(parallel_for(1, 0, [](std::size_t) {}), InvariantError);
}

}  // namespace
}  // namespace kvsim
