#include "sim/config/yaml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <variant>

#include "sim/base/check.hpp"
#include "sim/base/text.hpp"
#include "sim/config/quantity.hpp"

namespace kvsim {

namespace {

std::string describe_range(IntRange range) {
    const IntRange all;
    if (range.max == all.max) return range.min == all.min ? "" : fmt::format(" of at least {}", range.min);
    if (range.min == all.min) return fmt::format(" of at most {}", range.max);
    return fmt::format(" from {} to {}", range.min, range.max);
}

std::string describe_range(RealRange range) {
    const RealRange all;
    std::string text;
    if (range.min != all.min)
        text = fmt::format(" {} {}", range.above_min ? "above" : "of at least", range.min);
    if (range.max != all.max) text += fmt::format("{} of at most {}", text.empty() ? "" : " and", range.max);
    return text;
}

std::string child_path(const std::string& parent, std::string_view key) {
    return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

}  // namespace

// ---- YamlCursor ------------------------------------------------------------------------------------------

void YamlCursor::mistake(std::string message) const {
    reader_->note(Mistake{place(), path_, std::move(message)});
}

bool YamlCursor::require_map() const {
    if (node_ == nullptr) return false;
    if (reader_->maps_.contains(node_)) return true;
    if (node_->kind != YamlNode::Kind::kMap) {
        // Said once per node, however many keys are asked for.
        if (reader_->not_maps_.insert(node_).second) {
            mistake(fmt::format("expected a map, got {}", describe(*node_)));
        }
        return false;
    }
    reader_->maps_[node_].path = path_;
    return true;
}

void YamlCursor::ignore_rest() const {
    if (require_map()) reader_->maps_[node_].ignore_rest = true;
}

YamlCursor YamlCursor::find(std::string_view key) const {
    const std::string path = child_path(path_, key);
    if (!require_map()) return {reader_, nullptr, path};
    reader_->maps_[node_].known.emplace(key);
    return {reader_, node_->find(key), path};
}

YamlCursor YamlCursor::at(std::string_view key) const {
    YamlCursor child = find(key);
    if (!child.present() && is_map()) {
        reader_->note(Mistake{place(), child.path_, "missing required key"});
    }
    return child;
}

std::vector<std::pair<std::string, YamlCursor>> YamlCursor::entries() const {
    std::vector<std::pair<std::string, YamlCursor>> cursors;
    if (!require_map()) return cursors;
    for (const YamlEntry& entry : node_->entries) cursors.emplace_back(entry.key, find(entry.key));
    return cursors;
}

std::vector<YamlCursor> YamlCursor::items(std::size_t min_count) const {
    std::vector<YamlCursor> cursors;
    if (node_ == nullptr) return cursors;
    if (node_->kind != YamlNode::Kind::kList) {
        mistake(fmt::format("expected a list, got {}", describe(*node_)));
        return cursors;
    }
    if (node_->items.size() < min_count) {
        mistake(fmt::format("expected a list of at least {} values, got {}", min_count, node_->items.size()));
    }
    for (std::size_t i = 0; i < node_->items.size(); ++i) {
        cursors.push_back({reader_, &node_->items[i], fmt::format("{}[{}]", path_, i)});
    }
    return cursors;
}

const YamlNode* YamlCursor::scalar(std::string_view expected, bool plain) const {
    if (node_ == nullptr) return nullptr;
    if (node_->kind == YamlNode::Kind::kScalar && !(plain && node_->quoted)) return node_;
    mistake(fmt::format("expected {}, got {}", expected, describe(*node_)));
    return nullptr;
}

std::int64_t YamlCursor::integer(IntRange range, std::int64_t fallback) const {
    const std::string expected = "an integer" + describe_range(range);
    const YamlNode* node = scalar(expected, true);
    if (node == nullptr) return fallback;
    const std::optional<std::int64_t> value = parse_integer(node->text);
    if (value && *value >= range.min && *value <= range.max) return *value;
    const bool octal = has_leading_zero(node->text);
    mistake(fmt::format("expected {}, got {}{}", expected, describe(*node),
                        octal ? " (a leading zero could mean octal)" : ""));
    return fallback;
}

int YamlCursor::small_integer(IntRange range, int fallback) const {
    range.min = std::max<std::int64_t>(range.min, std::numeric_limits<int>::min());
    range.max = std::min<std::int64_t>(range.max, std::numeric_limits<int>::max());
    return static_cast<int>(integer(range, fallback));
}

double YamlCursor::real(RealRange range, double fallback) const {
    const std::string expected = "a finite number" + describe_range(range);
    const YamlNode* node = scalar(expected, true);
    if (node == nullptr) return fallback;
    const std::optional<double> value = parse_real(node->text);
    if (value && (range.above_min ? *value > range.min : *value >= range.min) && *value <= range.max)
        return *value;
    mistake(fmt::format("expected {}, got {}", expected, describe(*node)));
    return fallback;
}

bool YamlCursor::boolean(bool fallback) const {
    const YamlNode* node = scalar("true or false", true);
    if (node == nullptr) return fallback;
    if (node->text == "true") return true;
    if (node->text == "false") return false;
    mistake(fmt::format("expected true or false, got {}", describe(*node)));
    return fallback;
}

std::string YamlCursor::string(std::string fallback) const {
    const YamlNode* node = scalar("a string", false);
    if (node == nullptr) return fallback;
    if (node->text.empty()) mistake("expected a string, got an empty one");
    return node->text;
}

std::optional<std::size_t> YamlCursor::choice_index(std::span<const std::string_view> names) const {
    const YamlNode* node = scalar("one of " + join(names), false);
    if (node == nullptr) return std::nullopt;
    const auto found = std::ranges::find(names, node->text);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    mistake(fmt::format("expected one of {}, got {}{}", join(names), describe(*node),
                        suggestion(node->text, names)));
    return std::nullopt;
}

template <class T>
T YamlCursor::quantity(auto parse, std::string_view expected, Sign sign, T fallback) const {
    const YamlNode* node = scalar(expected, false);
    if (node == nullptr) return fallback;
    auto parsed = parse(node->text);
    if (auto* message = std::get_if<std::string>(&parsed)) {
        mistake(std::move(*message));
        return fallback;
    }
    const T value = std::get<T>(parsed);
    if (value > T{} || (sign == Sign::kNonNegative && value == T{})) return value;
    mistake(fmt::format("expected {} {}, got {}", expected,
                        sign == Sign::kPositive ? "above zero" : "of at least zero", describe(*node)));
    return fallback;
}

Bytes YamlCursor::bytes(Sign sign, Bytes fallback) const {
    return quantity(parse_bytes, "a size in bytes", sign, fallback);
}
Time YamlCursor::time(Sign sign, Time fallback) const {
    return quantity(parse_time, "a time", sign, fallback);
}
Bandwidth YamlCursor::bandwidth(Bandwidth fallback) const {
    return quantity(parse_bandwidth, "a bandwidth", Sign::kPositive, fallback);
}
FlopRate YamlCursor::flop_rate(FlopRate fallback) const {
    return quantity(parse_flop_rate, "a FLOP rate", Sign::kPositive, fallback);
}
Frequency YamlCursor::frequency(Frequency fallback) const {
    return quantity(parse_frequency, "a rate", Sign::kPositive, fallback);
}

// ---- YamlReader ------------------------------------------------------------------------------------------

void YamlReader::note(const ConfigError& error) {
    for (const Mistake& m : error.mistakes()) note(m);
}

std::optional<YamlNode> YamlReader::load(const std::string& file, std::string_view kind, int version) {
    YamlNode tree;
    try {
        tree = parse_yaml_file(file);
    } catch (const ConfigError& error) {
        note(error);
        return std::nullopt;
    }
    const std::string expected = fmt::format("kvsim/{}/{}", kind, version);
    const YamlNode* schema = tree.find("schema");
    if (schema != nullptr && schema->text == expected) return tree;
    const std::string got = tree.kind != YamlNode::Kind::kMap ? describe(tree)
                            : schema == nullptr               ? "a file without it"
                                                              : describe(*schema);
    note(Mistake{schema != nullptr ? schema->place : tree.place, "schema",
                 fmt::format("expected `schema: {}`, got {}", expected, got)});
    return std::nullopt;
}

YamlCursor YamlReader::root(YamlNode tree, std::string path) {
    trees_.push_back(std::move(tree));
    return {this, &trees_.back(), std::move(path)};
}

YamlCursor YamlReader::open(const std::string& file, std::string_view kind, int version) {
    std::optional<YamlNode> tree = load(file, kind, version);
    if (!tree) return {this, nullptr, ""};
    YamlCursor cursor = root(std::move(*tree));
    cursor.at("schema");
    return cursor;
}

void YamlReader::finish() {
    for (const auto& [node, use] : maps_) {
        const std::vector<std::string_view> known(use.known.begin(), use.known.end());
        for (const YamlEntry& entry : node->entries) {
            if (use.ignore_rest || use.known.contains(entry.key)) continue;
            const std::string hint = suggestion(entry.key, known);
            note(Mistake{entry.key_place, child_path(use.path, entry.key),
                         fmt::format("unknown key `{}`{}", entry.key,
                                     hint.empty() ? fmt::format("; known: {}", join(known)) : hint)});
        }
    }
    maps_.clear();
    if (mistakes_.empty()) return;
    // maps_ is ordered by address: the order of its mistakes must not show.
    std::ranges::stable_sort(mistakes_, {}, [](const Mistake& m) {
        return std::tie(m.place.file, m.place.line, m.place.column, m.path, m.message);
    });
    throw ConfigError(std::exchange(mistakes_, {}));
}

}  // namespace kvsim
