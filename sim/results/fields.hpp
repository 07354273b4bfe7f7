// The fields of a result, in one table: runs.csv and `kvsim run --json` both follow it, so that a name exists
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/results/run_result.hpp"

namespace kvsim {

// Empty when a run has no such number, as a percentile without samples: an empty cell in CSV, null in JSON.
using FieldValue = std::variant<std::monostate, std::int64_t, double, std::string_view>;

struct ResultField {
    std::string name;  // JSON nests at the dots, CSV has '_' in their place; the unit is in the name
    std::string help;
    std::function<FieldValue(const RunResult&)> get;
};

// All fields, in the order of the columns.
std::span<const ResultField> result_fields();

// One row of runs.csv: names and cells of the same length. Doubles are the shortest text that reads back as
// the same number, whatever the locale.
std::vector<std::string> csv_header();
std::vector<std::string> csv_row(const RunResult& result);

nlohmann::json to_json(const RunResult& result);

}  // namespace kvsim
