// Strict reading of YAML files. Schema code walks a YamlCursor and asks for what it knows; the YamlReader
// collects every mistake of every file, finds the keys that nobody asked for, and throws one ConfigError at
// the end.
//
//     YamlReader reader;
//     const YamlCursor root = reader.open(file, "device");          // checks `schema: kvsim/device/1`
//     device.memory = root.at("memory").bytes();                    // required, positive
//     seed = root.find("seed").integer({.min = 0}, 1);              // optional, 1 when absent
//     reader.finish();
//
// A read that fails notes a mistake and returns the fallback, so that reading goes on: values count only
// after finish().
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"
#include "sim/config/yaml_tree.hpp"

namespace kvsim {

// Inclusive bounds.
struct IntRange {
    std::int64_t min = std::numeric_limits<std::int64_t>::min();
    std::int64_t max = std::numeric_limits<std::int64_t>::max();
};
inline constexpr IntRange kPositiveInt{.min = 1};

// Bounds of a finite number; the lower one may be excluded.
struct RealRange {
    double min = std::numeric_limits<double>::lowest();
    double max = std::numeric_limits<double>::max();
    bool above_min = false;
};
inline constexpr RealRange kPositiveReal{.min = 0.0, .above_min = true};

enum class Sign : std::uint8_t { kPositive, kNonNegative };

class YamlReader;

// A node, or the lack of one. Cheap to copy; valid as long as its reader.
class YamlCursor {
  public:
    // Whether a value stands here. A missing required key has been noted already.
    bool present() const { return node_ != nullptr; }
    const std::string& path() const { return path_; }
    Place place() const { return node_ != nullptr ? node_->place : Place{}; }
    bool is_map() const { return node_ != nullptr && node_->kind == YamlNode::Kind::kMap; }
    bool is_word(std::string_view word) const {
        return node_ != nullptr && node_->kind == YamlNode::Kind::kScalar && node_->text == word;
    }

    // The value of a key. at() notes a missing key at the place of this map; both note a node that is no map.
    YamlCursor at(std::string_view key) const;
    YamlCursor find(std::string_view key) const;
    // Keys and values of a map whose keys are the user's own names, in file order; notes a node that is no
    // map.
    std::vector<std::pair<std::string, YamlCursor>> entries() const;
    // The items of a list; notes a node that is no list or has fewer.
    std::vector<YamlCursor> items(std::size_t min_count = 0) const;

    std::int64_t integer(IntRange range = {}, std::int64_t fallback = 0) const;
    // For fields that are int; the range must lie within it.
    int small_integer(IntRange range, int fallback = 0) const;
    double real(RealRange range = {}, double fallback = 0.0) const;
    bool boolean(bool fallback = false) const;
    std::string string(std::string fallback = {}) const;  // not empty
    Bytes bytes(Sign sign = Sign::kPositive, Bytes fallback = {}) const;
    Time time(Sign sign = Sign::kPositive, Time fallback = {}) const;
    Bandwidth bandwidth(Bandwidth fallback = {}) const;  // positive
    FlopRate flop_rate(FlopRate fallback = {}) const;    // positive
    Frequency frequency(Frequency fallback = {}) const;  // positive

    // A word of a table such as kFormNames.
    template <class Enum, std::size_t N>
    Enum choice(const std::array<std::string_view, N>& names, Enum fallback = {}) const {
        const std::optional<std::size_t> index = choice_index(names);
        return index ? static_cast<Enum>(*index) : fallback;
    }
    std::optional<std::size_t> choice_index(std::span<const std::string_view> names) const;

    // Takes any key of this map as known: for maps that a mistake keeps from being read.
    void ignore_rest() const;
    // Notes a mistake at this node.
    void mistake(std::string message) const;

  private:
    friend class YamlReader;
    YamlCursor(YamlReader* reader, const YamlNode* node, std::string path)
        : reader_(reader), node_(node), path_(std::move(path)) {}

    bool require_map() const;
    // The scalar to be read as `expected`, or null after noting what stands here instead.
    const YamlNode* scalar(std::string_view expected, bool plain) const;
    template <class T>
    T quantity(auto parse, std::string_view expected, Sign sign, T fallback) const;

    YamlReader* reader_ = nullptr;
    const YamlNode* node_ = nullptr;
    std::string path_;
};

class YamlReader {
  public:
    YamlReader() = default;
    YamlReader(const YamlReader&) = delete;
    YamlReader& operator=(const YamlReader&) = delete;

    // Parses a file and checks its header `schema: kvsim/<kind>/<version>`. Empty after noting what is wrong:
    // a file of another kind is not read any further.
    std::optional<YamlNode> load(const std::string& file, std::string_view kind, int version = 1);
    // Takes over a tree. `path` is the key path of its root.
    YamlCursor root(YamlNode tree, std::string path = {});
    // load() and root(): a cursor without a node after a mistake.
    YamlCursor open(const std::string& file, std::string_view kind, int version = 1);

    void note(Mistake mistake) { mistakes_.push_back(std::move(mistake)); }
    void note(const ConfigError& error);
    bool good() const { return mistakes_.empty(); }

    // Notes the unknown keys of every map that was read, and throws ConfigError if there are mistakes, by
    // file and line.
    void finish();

  private:
    friend class YamlCursor;
    struct MapUse {
        std::string path;
        std::set<std::string, std::less<>> known;
        bool ignore_rest = false;
    };

    std::list<YamlNode> trees_;
    std::map<const YamlNode*, MapUse> maps_;
    std::set<const YamlNode*> not_maps_;
    std::vector<Mistake> mistakes_;
};

}  // namespace kvsim
