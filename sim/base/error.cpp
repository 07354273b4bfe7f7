#include "sim/base/error.hpp"

#include <fmt/format.h>

#include <utility>

#include "sim/base/check.hpp"

namespace kvsim {

std::string format_mistake(const Mistake& mistake) {
    std::string text = mistake.place.file;
    if (mistake.place.line > 0) text += fmt::format(":{}", mistake.place.line);
    if (mistake.place.line > 0 && mistake.place.column > 0) text += fmt::format(":{}", mistake.place.column);
    if (!text.empty()) text += ": ";
    if (!mistake.path.empty()) text += mistake.path + ": ";
    return text + mistake.message;
}

namespace {
std::string join(const std::vector<Mistake>& mistakes) {
    KVSIM_CHECK(!mistakes.empty(), "a ConfigError needs a mistake");
    std::string text;
    for (const Mistake& m : mistakes) {
        if (!text.empty()) text += '\n';
        text += format_mistake(m);
    }
    return text;
}
}  // namespace

ConfigError::ConfigError(std::vector<Mistake> mistakes)
    : std::runtime_error(join(mistakes)), mistakes_(std::move(mistakes)) {}

void throw_mistake(Place place, std::string path, std::string message) {
    throw ConfigError(std::vector<Mistake>{{std::move(place), std::move(path), std::move(message)}});
}

}  // namespace kvsim
