// A YAML file as a plain tree in which every node knows its place. Parsing is yaml-cpp's; the tree keeps what
// its node API loses: all keys of a map in file order (yaml-cpp 0.7 lets the first of two equal keys win),
// whether a scalar was quoted, and places that survive overrides and includes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"

namespace kvsim {

struct YamlEntry;

struct YamlNode {
    enum class Kind : unsigned char { kNull, kScalar, kList, kMap };

    Kind kind = Kind::kNull;
    Place place;                     // a block map stands where its first key does
    std::string text;                // scalars
    bool quoted = false;             // scalars: "64" is a string, 64 a number
    std::vector<YamlNode> items;     // lists
    std::vector<YamlEntry> entries;  // maps, in file order, keys distinct

    const YamlNode* find(std::string_view key) const;
    YamlNode* find(std::string_view key);
    bool erase(std::string_view key);
};

struct YamlEntry {
    std::string key;
    Place key_place;
    YamlNode value;
};

// "a map", "the list", `text`: how messages name what they found.
std::string describe(const YamlNode& node);

// One document per file. Throws ConfigError with every structural mistake: syntax, duplicate keys, merge
// keys, anchors, aliases, tags, several documents, an empty or unreadable file.
YamlNode parse_yaml_file(const std::string& file);
YamlNode parse_yaml_text(const std::string& text, const std::string& file);

// Assigns `path=value` of --set: replaces the node at the dotted path, creating maps on the way and replacing
// a scalar that stands in the way. The place of all that is new is `--set path=value`. Throws ConfigError for
// an empty path segment or a value that is no YAML.
void set_path(YamlNode& root, const std::string& path, const std::string& value);

// Place of an override; its line is 0.
Place override_place(const std::string& path, const std::string& value);
// Segments of a dotted path. Throws ConfigError at `place` when one is empty.
std::vector<std::string> split_path(const std::string& path, const Place& place);

}  // namespace kvsim
