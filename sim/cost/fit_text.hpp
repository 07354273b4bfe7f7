// What the files of fits share (fit.yaml, published.yaml): laws, ranges and errors as text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "sim/config/yaml.hpp"
#include "sim/cost/fit.hpp"

namespace kvsim {

// Six significant digits, a thousand times finer than a fit is: files can be read, and are the same on
// machines whose logarithms differ in the last bit.
double six_digits(double x);

// Errors are for readers; all else is in fmt's shortest decimal that reads back as the same double.
std::string text_of(const ErrorSummary& errors);
std::string text_of(const ValidRange& range);

// A line for each parameter.
template <class Law>
std::string text_of_law(const Law& law, std::string_view indent) {
    std::string text;
    for (const auto& p : kLawParameters<Law>)
        text += fmt::format("{}{}: {}\n", indent, p.name, law.*(p.member));
    return text;
}

ErrorSummary read_errors(const YamlCursor& map);
ValidRange read_range(const YamlCursor& list);

// Parameters within their bounds.
template <class Law>
Law read_law(const YamlCursor& map) {
    Law law;
    for (const auto& p : kLawParameters<Law>) {
        law.*(p.member) = map.at(p.name).real({.min = p.bounds.min, .max = p.bounds.max}, p.bounds.initial);
    }
    return law;
}

}  // namespace kvsim
