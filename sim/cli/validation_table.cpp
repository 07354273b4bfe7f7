#include "sim/cli/validation_table.hpp"

#include <fmt/format.h>

#include "sim/cli/table.hpp"

namespace kvsim {

namespace {

constexpr std::size_t kErrorColumns = 4;

void add_errors(std::vector<std::string>& cells, const ErrorSummary& errors) {
    if (errors.rows == 0) {
        cells.insert(cells.end(), kErrorColumns, "");
        return;
    }
    cells.push_back(fmt::format("{}", errors.rows));
    for (const double error : {errors.median, errors.p90, errors.worst})
        cells.push_back(fmt::format("{:.2f}", 100.0 * error));
}

}  // namespace

std::string validation_table(std::span<const ValidationRow> rows) {
    using enum TextTable::Align;
    TextTable table({{"kernel or layer", kLeft},
                     {"rows", kLeft},
                     {"fitted"},
                     {"median %"},
                     {"p90 %"},
                     {"worst %"},
                     {"held out"},
                     {"median %"},
                     {"p90 %"},
                     {"worst %"}});
    const auto add = [&](std::string layer, std::string part, const auto& errors) {
        std::vector<std::string> cells{std::move(layer), std::move(part)};
        add_errors(cells, errors.fitted);
        add_errors(cells, errors.held_out);
        table.add_row(std::move(cells));
    };
    for (const ValidationRow& row : rows) {
        add(row.layer.empty() ? row.kernel : row.layer, "all", row);
        for (const ValidationPart& part : row.parts) add("", part.name, part);
    }
    return table.str();
}

}  // namespace kvsim
