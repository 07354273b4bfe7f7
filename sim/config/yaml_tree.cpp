#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "sim/base/check.hpp"
#include "sim/base/file.hpp"

namespace kvsim {

namespace {

YamlNode make_node(YamlNode::Kind kind, Place place) {
    YamlNode node;
    node.kind = kind;
    node.place = std::move(place);
    return node;
}

// Builds the tree from yaml-cpp's events and notes the constructs that configuration files must not use.
class TreeBuilder final : public YAML::EventHandler {
  public:
    // With `fixed`, every node stands at that place: values that come from the command line.
    TreeBuilder(std::string file, std::optional<Place> fixed)
        : file_(std::move(file)), fixed_(std::move(fixed)) {}

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}

    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        reject_anchor(mark, anchor);
        add(make_node(YamlNode::Kind::kNull, place(mark)));
    }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        note(place(mark), "aliases (`*name`) are not supported; repeat the value");
        add(make_node(YamlNode::Kind::kNull, place(mark)));
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        reject_anchor(mark, anchor);
        reject_tag(mark, tag);
        YamlNode node = make_node(YamlNode::Kind::kScalar, place(mark));
        node.text = value;
        node.quoted = tag == "!";
        add(std::move(node));
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        start(YamlNode::Kind::kList, mark, tag, anchor);
    }
    void OnSequenceEnd() override { end(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        start(YamlNode::Kind::kMap, mark, tag, anchor);
    }
    void OnMapEnd() override { end(); }

    void note(Place where, std::string message) {
        mistakes_.push_back({std::move(where), "", std::move(message)});
    }
    // yaml-cpp counts from zero.
    Place place(const YAML::Mark& mark) const {
        return fixed_ ? *fixed_ : Place{file_, mark.line + 1, mark.column + 1};
    }
    YamlNode& root() { return root_; }
    std::vector<Mistake>& mistakes() { return mistakes_; }

  private:
    struct Frame {
        YamlNode node;
        std::optional<YamlNode> key;  // maps: a key that waits for its value
    };

    void reject_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
        if (anchor != 0) note(place(mark), "anchors (`&name`) are not supported");
    }
    // Untagged nodes arrive as "?" (plain) and "!" (quoted).
    void reject_tag(const YAML::Mark& mark, const std::string& tag) {
        if (!tag.empty() && tag != "?" && tag != "!") {
            note(place(mark), fmt::format("tags are not supported, got `{}`", tag));
        }
    }
    void start(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
        reject_anchor(mark, anchor);
        reject_tag(mark, tag);
        stack_.push_back({make_node(kind, place(mark)), std::nullopt});
    }
    void end() {
        YamlNode node = std::move(stack_.back().node);
        stack_.pop_back();
        add(std::move(node));
    }
    void add(YamlNode node) {
        if (stack_.empty()) {
            root_ = std::move(node);
            return;
        }
        Frame& top = stack_.back();
        if (top.node.kind == YamlNode::Kind::kList) {
            top.node.items.push_back(std::move(node));
        } else if (!top.key) {
            top.key = std::move(node);
        } else {
            add_entry(top.node, *std::exchange(top.key, std::nullopt), std::move(node));
        }
    }
    void add_entry(YamlNode& map, YamlNode key, YamlNode value) {
        if (key.kind != YamlNode::Kind::kScalar) {
            note(key.place, fmt::format("expected a key that is a word, got {}", describe(key)));
            return;
        }
        if (key.text == "<<" && !key.quoted) {
            note(key.place, "merge keys (`<<`) are not supported; write the keys out");
            return;
        }
        const auto same = [&](const YamlEntry& e) { return e.key == key.text; };
        if (const auto first = std::ranges::find_if(map.entries, same); first != map.entries.end()) {
            note(key.place,
                 fmt::format("duplicate key `{}`, first given in line {}", key.text, first->key_place.line));
            return;
        }
        // An absent value has no place of its own: yaml-cpp reports the next token's.
        if (value.kind == YamlNode::Kind::kNull) value.place = key.place;
        map.entries.push_back({std::move(key.text), std::move(key.place), std::move(value)});
    }

    std::string file_;
    std::optional<Place> fixed_;
    YamlNode root_;
    std::vector<Frame> stack_;
    std::vector<Mistake> mistakes_;
};

YamlNode parse(const std::string& text, const std::string& file, const std::optional<Place>& fixed) {
    TreeBuilder builder(file, fixed);
    std::istringstream stream(text);
    try {
        YAML::Parser parser(stream);
        parser.HandleNextDocument(builder);
        if (builder.mistakes().empty() && parser) {
            TreeBuilder second(file, fixed);
            if (parser.HandleNextDocument(second)) {
                builder.note(second.root().place, "expected one YAML document, got a second one");
            }
        }
    } catch (const YAML::Exception& error) {
        builder.note(builder.place(error.mark), fmt::format("not valid YAML: {}", error.msg));
    }
    if (!builder.mistakes().empty()) throw ConfigError(std::move(builder.mistakes()));
    return std::move(builder.root());
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
    const auto entry = std::ranges::find_if(entries, [&](const YamlEntry& e) { return e.key == key; });
    return entry == entries.end() ? nullptr : &entry->value;
}

YamlNode* YamlNode::find(std::string_view key) {
    return const_cast<YamlNode*>(std::as_const(*this).find(key));
}

bool YamlNode::erase(std::string_view key) {
    return std::erase_if(entries, [&](const YamlEntry& e) { return e.key == key; }) > 0;
}

std::string describe(const YamlNode& node) {
    switch (node.kind) {
        case YamlNode::Kind::kNull:
            return "nothing";
        case YamlNode::Kind::kList:
            return "a list";
        case YamlNode::Kind::kMap:
            return "a map";
        case YamlNode::Kind::kScalar:
            break;
    }
    return node.quoted ? fmt::format("the string \"{}\"", node.text) : fmt::format("`{}`", node.text);
}

YamlNode parse_yaml_text(const std::string& text, const std::string& file) {
    YamlNode root = parse(text, file, std::nullopt);
    if (root.kind == YamlNode::Kind::kNull) throw_mistake(Place{file, 0, 0}, "", "the file is empty");
    return root;
}

YamlNode parse_yaml_file(const std::string& file) {
    return parse_yaml_text(read_regular_file(file), file);
}

Place override_place(const std::string& path, const std::string& value) {
    return Place{fmt::format("--set {}={}", path, value), 0, 0};
}

std::vector<std::string> split_path(const std::string& path, const Place& place) {
    std::vector<std::string> segments(1);
    for (const char c : path) {
        if (c == '.') {
            segments.emplace_back();
        } else {
            segments.back() += c;
        }
    }
    if (std::ranges::any_of(segments, [](const std::string& s) { return s.empty(); })) {
        throw_mistake(place, "", fmt::format("expected a key path such as linear.form, got `{}`", path));
    }
    return segments;
}

void set_path(YamlNode& root, const std::string& path, const std::string& value) {
    const Place place = override_place(path, value);
    YamlNode* node = &root;
    for (std::string& key : split_path(path, place)) {
        if (node->kind != YamlNode::Kind::kMap) *node = make_node(YamlNode::Kind::kMap, place);
        YamlNode* child = node->find(key);
        if (child == nullptr) {
            node->entries.push_back({std::move(key), place, make_node(YamlNode::Kind::kNull, place)});
            child = &node->entries.back().value;
        }
        node = child;
    }
    *node = parse(value, "", place);
    node->place = place;
}

}  // namespace kvsim
