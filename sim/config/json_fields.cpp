#include "sim/config/json_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "sim/base/file.hpp"

namespace kvsim {

using nlohmann::ordered_json;

namespace {

// Values in messages, cut where they are long.
std::string shown(const ordered_json& value) {
    constexpr std::size_t kMost = 60;
    const std::string text = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

// Walks over the text, and lets its scanner see how far it has come.
class Walker {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    Walker(const char* at, const char** seen) : at_(at), seen_(seen) {}
    reference operator*() const { return *at_; }
    Walker& operator++() {
        *seen_ = ++at_;
        return *this;
    }
    bool operator==(const Walker& other) const { return at_ == other.at_; }
    bool operator!=(const Walker& other) const { return at_ != other.at_; }

  private:
    const char* at_;
    const char** seen_;
};

// Notes where keys stand, and where a text stops being JSON, repeats a key or holds a number that no double
// can: the library keeps no places.
class Scanner final : public nlohmann::json_sax<ordered_json> {
  public:
    Scanner(const std::string& file, std::string_view text) : file_(file), text_(text), seen_(text.data()) {}

    // Throws ConfigError.
    std::map<std::string, Place> scan() {
        const char* const end = text_.data() + text_.size();
        if (!ordered_json::sax_parse(Walker(text_.data(), &seen_), Walker(end, &seen_), this))
            throw_mistake(failed_, "", message_);
        return std::move(places_);
    }

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(std::size_t) override { return enter(); }
    bool end_object() override { return leave(); }
    bool start_array(std::size_t) override { return enter(); }
    bool end_array() override { return leave(); }

    bool key(string_t& name) override {
        path_.back() = name;
        const auto closing = static_cast<std::size_t>(seen_ - text_.data()) - 1;
        std::size_t opening = text_.rfind('"', closing - 1);
        while (opening > 0 && text_[opening - 1] == '\\') opening = text_.rfind('"', opening - 1);
        const auto [known, fresh] = places_.emplace(fmt::format("{}", fmt::join(path_, ".")), place(opening));
        // Entries of lists have no path of their own.
        if (fresh || std::ranges::find(path_, "") != path_.end()) return true;
        failed_ = place(opening);
        message_ = fmt::format("duplicate key `{}`, first given in line {}", name, known->second.line);
        return false;
    }

    // `end`: characters read so far. The last of them is what did not fit; a number is known to be too large
    // after its end, and then `token` is the number.
    bool parse_error(std::size_t end, const std::string& token,
                     const nlohmann::detail::exception& error) override {
        constexpr int kSyntax = 101;
        const std::size_t back = error.id == kSyntax ? 1 : token.size();
        failed_ = place(std::min(end - std::min(end, back), text_.size()));
        // "[json.exception.parse_error.101] parse error at line 1, column 2: what"
        const std::string text = error.what();
        const std::size_t what = text.find(error.id == kSyntax ? ": " : "] ");
        message_ = "no JSON: " + (what == std::string::npos ? text : text.substr(what + 2));
        return false;
    }

  private:
    bool enter() {
        path_.emplace_back();
        return true;
    }
    bool leave() {
        path_.pop_back();
        return true;
    }
    Place place(std::size_t offset) const {
        const std::string_view before = text_.substr(0, offset);
        const std::size_t line_end = before.rfind('\n');
        const std::size_t line_start = line_end == std::string_view::npos ? 0 : line_end + 1;
        return {file_, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
                1 + static_cast<int>(offset - line_start)};
    }

    std::string file_;
    std::string_view text_;
    const char* seen_;
    std::vector<std::string> path_;  // keys of the objects that are open; "" for a list
    std::map<std::string, Place> places_;
    Place failed_;
    std::string message_;
};

}  // namespace

void JsonReport::note(std::string path, std::string message) {
    for (const Mistake& m : mistakes) {
        if (m.path == path && m.message == message) return;  // a key that is asked for twice
    }
    // A key that is missing: where its object stands.
    auto at = places.find(path);
    for (std::string above = path; at == places.end() && above.find('.') != std::string::npos;) {
        above.erase(above.rfind('.'));
        at = places.find(above);
    }
    mistakes.push_back({at == places.end() ? Place{file} : at->second, std::move(path), std::move(message)});
}

void JsonReport::finish() {
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
}

JsonFields::JsonFields(const ordered_json& json, std::string path, JsonReport& report)
    : json_(&json), path_(std::move(path)), report_(&report) {}

std::string JsonFields::path_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const ordered_json* JsonFields::value(std::string_view key) const {
    const auto found = json_->find(std::string(key));
    return found == json_->end() || found->is_null() ? nullptr : &*found;
}

const ordered_json* JsonFields::required(std::string_view key) {
    known_.emplace(key);
    const ordered_json* found = value(key);
    if (found == nullptr) mistake(key, "missing required key");
    return found;
}

void JsonFields::mistake(std::string_view key, std::string message) {
    report_->note(path_of(key), std::move(message));
}

int JsonFields::integer_of(std::string_view key, const ordered_json& v) {
    if (v.is_number_integer()) {
        // Unsigned first: it also holds what is beyond int64.
        const bool fits = v.is_number_unsigned()
                              ? v.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<int>::max()}
                              : v.get<std::int64_t>() >= 0;
        if (fits) return v.get<int>();
    }
    mistake(key, fmt::format("expected a whole number from 0 to {}, got {}", std::numeric_limits<int>::max(),
                             shown(v)));
    return 0;
}

std::string JsonFields::text_of(std::string_view key, const ordered_json& v) {
    if (v.is_string()) return v.get<std::string>();
    mistake(key, fmt::format("expected a string, got {}", shown(v)));
    return "";
}

int JsonFields::integer(std::string_view key) {
    const ordered_json* v = required(key);
    return v != nullptr ? integer_of(key, *v) : 0;
}

int JsonFields::integer(std::string_view key, int fallback) {
    known_.emplace(key);
    return has(key) ? integer(key) : fallback;
}

bool JsonFields::boolean(std::string_view key) {
    const ordered_json* v = required(key);
    if (v == nullptr) return false;
    if (v->is_boolean()) return v->get<bool>();
    mistake(key, fmt::format("expected true or false, got {}", shown(*v)));
    return false;
}

bool JsonFields::boolean(std::string_view key, bool fallback) {
    known_.emplace(key);
    return has(key) ? boolean(key) : fallback;
}

std::string JsonFields::text(std::string_view key) {
    const ordered_json* v = required(key);
    return v != nullptr ? text_of(key, *v) : "";
}

std::vector<int> JsonFields::integers(std::string_view key) {
    const ordered_json* v = required(key);
    std::vector<int> numbers;
    if (v == nullptr) return numbers;
    if (!v->is_array()) {
        mistake(key, fmt::format("expected a list of whole numbers, got {}", shown(*v)));
        return numbers;
    }
    for (const ordered_json& item : *v) numbers.push_back(integer_of(key, item));
    return numbers;
}

std::vector<std::string> JsonFields::texts(std::string_view key) {
    const ordered_json* v = required(key);
    std::vector<std::string> words;
    if (v == nullptr) return words;
    if (!v->is_array()) {
        mistake(key, fmt::format("expected a list of strings, got {}", shown(*v)));
        return words;
    }
    for (const ordered_json& item : *v) words.push_back(text_of(key, item));
    return words;
}

JsonFields JsonFields::object(std::string_view key) {
    static const ordered_json kEmpty = ordered_json::object();
    const ordered_json* v = required(key);
    if (v != nullptr && !v->is_object()) {
        mistake(key, fmt::format("expected an object, got {}", shown(*v)));
        v = nullptr;
    }
    return {v != nullptr ? *v : kEmpty, path_of(key), *report_};
}

void JsonFields::expect(std::string_view key, const ordered_json& only) {
    known_.emplace(key);
    const ordered_json* v = value(key);
    if (v != nullptr && *v != only)
        mistake(key,
                fmt::format("expected {}, got {}: not described by model files", shown(only), shown(*v)));
}

void JsonFields::ignore(std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) known_.emplace(key);
}

void JsonFields::list_unread() {
    for (const auto& [key, unread] : json_->items()) {
        if (!known_.contains(key) && !unread.is_null()) report_->not_understood.push_back(path_of(key));
    }
}

JsonDocument read_json_object(const std::string& file) {
    const std::string text = read_regular_file(file);
    JsonDocument document;
    document.places = Scanner(file, text).scan();
    document.json = ordered_json::parse(text);
    if (!document.json.is_object())
        throw_mistake({file}, "", fmt::format("expected an object, got {}", shown(document.json)));
    return document;
}

}  // namespace kvsim
