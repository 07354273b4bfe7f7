// What `kvsim capacity` prints: one answer, and alternatives side by side.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "sim/config/experiment.hpp"
#include "sim/memory/capacity.hpp"

namespace kvsim {

// An answer and what it answers: `experiment` with one way to serve its linear layers.
struct CapacityAnswer {
    Experiment experiment;
    std::int64_t tokens_per_request = 0;
    Capacity capacity;
};

nlohmann::ordered_json to_json(const CapacityAnswer& answer);
std::string to_table(const CapacityAnswer& answer);

// Answers for one model, device and length. A row's gain is over the last row before it that keeps no buffer.
nlohmann::ordered_json comparison_json(std::span<const CapacityAnswer> answers);
std::string comparison_table(std::span<const CapacityAnswer> answers);

}  // namespace kvsim
