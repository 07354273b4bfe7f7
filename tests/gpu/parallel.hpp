// Work of the CPU references spread over all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <thread>
#include <vector>

namespace kvsim {

// Calls work(0) to work(count - 1) from several threads. No Catch2 assertions inside: they are not
// thread-safe.
template <class Work>
void parallel_for(std::size_t count, const Work& work) {
    std::atomic<std::size_t> next{0};
    const std::size_t threads =
        std::min<std::size_t>(count, std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::future<void>> workers;
    for (std::size_t i = 0; i < threads; ++i) {
        workers.push_back(std::async(std::launch::async, [&] {
            for (std::size_t item = next++; item < count; item = next++) work(item);
        }));
    }
    for (std::future<void>& worker : workers) worker.get();
}

}  // namespace kvsim
