#include "sim/cli/validation_table.hpp"

#include <fmt/format.h>

#include "sim/cli/table.hpp"

namespace kvsim {

std::string validation_table(std::span<const ValidationRow> rows) {
    using enum TextTable::Align;
    TextTable table({{"kernel", kLeft},
                     {"layer", kLeft},
                     {"rows", kLeft},
                     {"number"},
                     {"median %"},
                     {"p90 %"},
                     {"worst %"}});
    const auto add = [&](const ValidationRow& row, const char* which, const ErrorSummary& errors) {
        if (errors.rows == 0) return;
        const auto percent = [](double error) { return fmt::format("{:.2f}", 100.0 * error); };
        table.add_row({row.kernel, row.layer, which, fmt::format("{}", errors.rows), percent(errors.median),
                       percent(errors.p90), percent(errors.worst)});
    };
    for (const ValidationRow& row : rows) {
        add(row, "fitted", row.fitted);
        add(row, "held out", row.held_out);
    }
    return table.str();
}

}  // namespace kvsim
