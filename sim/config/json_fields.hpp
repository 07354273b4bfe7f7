// Typed reading of a JSON object whose writer is another program: what is needed must be there with the right
// type, what nobody asked for is listed.
#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"

namespace kvsim {

// What reading one file has found.
struct JsonReport {
    std::string file;
    std::map<std::string, Place> places;  // of keys, by path
    std::vector<Mistake> mistakes;
    std::vector<std::string> not_understood;  // key paths, in the order of the file

    void note(std::string path, std::string message);
    // Throws ConfigError with all mistakes, if there are any.
    void finish();
};

// One object. A read that fails notes a mistake and returns a value to go on with; null counts as absent.
// `json` and `report` must outlive it.
class JsonFields {
  public:
    JsonFields(const nlohmann::ordered_json& json, std::string path, JsonReport& report);

    bool has(std::string_view key) const { return value(key) != nullptr; }

    // Whole numbers of at least 0 that fit an int; `fallback` where the key may be absent.
    int integer(std::string_view key);
    int integer(std::string_view key, int fallback);
    bool boolean(std::string_view key);
    bool boolean(std::string_view key, bool fallback);
    std::string text(std::string_view key);
    std::vector<int> integers(std::string_view key);
    std::vector<std::string> texts(std::string_view key);
    JsonFields object(std::string_view key);

    // A key that, where present, must hold what this program takes for granted.
    void expect(std::string_view key, const nlohmann::ordered_json& only);
    // Keys that change neither sizes nor operators.
    void ignore(std::initializer_list<std::string_view> keys);

    void mistake(std::string_view key, std::string message);
    // Adds the keys that nobody asked for to the report.
    void list_unread();

  private:
    const nlohmann::ordered_json* value(std::string_view key) const;
    const nlohmann::ordered_json* required(std::string_view key);
    std::string path_of(std::string_view key) const;
    int integer_of(std::string_view key, const nlohmann::ordered_json& value);
    std::string text_of(std::string_view key, const nlohmann::ordered_json& value);

    const nlohmann::ordered_json* json_;
    std::string path_;
    JsonReport* report_;
    std::set<std::string, std::less<>> known_;
};

struct JsonDocument {
    nlohmann::ordered_json json;
    std::map<std::string, Place> places;  // of keys, by path
};

// Parses a file. Throws ConfigError when it cannot be read, is no JSON object, or repeats a key.
JsonDocument read_json_object(const std::string& file);

}  // namespace kvsim
