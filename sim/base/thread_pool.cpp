#include "sim/base/thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "sim/base/check.hpp"

namespace kvsim {

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
    KVSIM_CHECK(threads >= 1, "{} threads", threads);
    std::vector<std::exception_ptr> errors(count);
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            try {
                body(i);
            } catch (...) {
                errors[i] = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> helpers;
        const std::size_t wanted = std::min(count, static_cast<std::size_t>(threads));
        for (std::size_t i = 1; i < wanted; ++i) helpers.emplace_back(work);
        work();
    }
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

}  // namespace kvsim
