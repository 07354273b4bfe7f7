// Independent jobs on several threads, with results that do not depend on how many.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace kvsim {

// Calls body(i) once for every i below count, on `threads` >= 1 threads (the calling one among them). All
// jobs run, even when some throw; then the exception of the smallest index is thrown again. body must be safe
// to call concurrently.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

// The results of body(i), in the order of i.
template <class Body>
auto parallel_map(std::size_t count, int threads, const Body& body) {
    std::vector<std::optional<decltype(body(std::size_t{}))>> slots(count);
    parallel_for(count, threads, [&](std::size_t i) { slots[i].emplace(body(i)); });
    std::vector<decltype(body(std::size_t{}))> results;
    results.reserve(count);
    for (auto& slot : slots) results.push_back(std::move(*slot));
    return results;
}

}  // namespace kvsim
