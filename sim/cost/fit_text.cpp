#include "sim/cost/fit_text.hpp"

#include <cstdlib>
#include <vector>

namespace kvsim {

namespace {

constexpr RealRange kNonNegative{.min = 0.0};

}  // namespace

double six_digits(double x) {
    return std::strtod(fmt::format("{:.6g}", x).c_str(), nullptr);
}

std::string text_of(const ErrorSummary& e) {
    return fmt::format("{{rows: {}, median: {:.4g}, p90: {:.4g}, worst: {:.4g}}}", e.rows, e.median, e.p90,
                       e.worst);
}

std::string text_of(const ValidRange& r) {
    return fmt::format("[{}, {}]", r.min, r.max);
}

ErrorSummary read_errors(const YamlCursor& map) {
    return {map.at("rows").integer({.min = 0}), map.at("median").real(kNonNegative),
            map.at("p90").real(kNonNegative), map.at("worst").real(kNonNegative)};
}

ValidRange read_range(const YamlCursor& list) {
    const std::vector<YamlCursor> ends = list.items(2);
    if (ends.size() < 2) return {};
    const ValidRange range{ends[0].real(kNonNegative), ends[1].real(kNonNegative)};
    if (ends.size() > 2 || range.min > range.max) list.mistake("expected [smallest, largest]");
    return range;
}

}  // namespace kvsim
