// Traces as JSON lines: Mooncake, Qwen-Bailian. One object per line, of which other keys are ignored.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "sim/workload/trace_rows.hpp"

namespace kvsim {
namespace {

enum Key : std::size_t { kStamp, kInput, kOutput, kHashes, kKeys };
constexpr std::array<std::string_view, kKeys> kKeyNames{"timestamp", "input_length", "output_length",
                                                        "hash_ids"};
constexpr std::string_view kChatKey = "chat_id";  // Qwen-Bailian

constexpr std::int64_t kMooncakeBlock = 512;
constexpr std::int64_t kBailianBlock = 16;

using Json = nlohmann::json;

// Takes in the events of one object. What is nested deeper than a list of hashes is skipped.
class RowReader final : public nlohmann::json_sax<Json> {
  public:
    explicit RowReader(std::vector<std::uint64_t>& blocks) : blocks_(blocks) {}

    // Reads one line; a mistake is what is wrong with it.
    std::optional<std::string> read(std::string_view line) {
        key_.reset();
        depth_ = 0;
        seen_.fill(false);
        chat_ = false;
        mistake_.reset();
        row_ = {};
        row_.first_block = blocks_.size();
        Json::sax_parse(line.begin(), line.end(), this);
        if (mistake_) return mistake_;
        for (const Key key : {kStamp, kInput, kOutput}) {
            if (!seen_[key]) return fmt::format("expected a key `{}`", kKeyNames[key]);
        }
        row_.blocks = static_cast<std::uint32_t>(blocks_.size() - row_.first_block);
        return std::nullopt;
    }
    const TraceRow& row() const { return row_; }
    std::string_view stamp() const { return stamp_; }
    bool chat() const { return chat_; }

    bool null() override { return other("null"); }
    bool boolean(bool value) override { return other(value ? "true" : "false"); }
    bool number_integer(std::int64_t value) override { return number(value, std::to_string(value)); }
    bool number_unsigned(std::uint64_t value) override {
        const bool fits = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (hash_expected() || !fits) {
            if (!hash_expected()) return other(std::to_string(value));
            blocks_.push_back(value);
            return true;
        }
        return number(static_cast<std::int64_t>(value), std::to_string(value));
    }
    bool number_float(double, const std::string& text) override {
        if (!at(kStamp)) return other(text);
        stamp_ = text;
        return true;
    }
    bool string(std::string& value) override { return other(fmt::format("\"{}\"", value)); }
    bool binary(Json::binary_t&) override { return other("binary"); }
    bool start_object(std::size_t) override { return depth_++ == 0 || other("an object"); }
    bool end_object() override { return --depth_ >= 0; }
    bool start_array(std::size_t) override {
        const bool good = depth_++ > 0 && (at_key(kHashes) || other("a list"));
        return good || fail("expected an object");
    }
    bool end_array() override { return --depth_ >= 0; }
    bool key(std::string& text) override {
        if (depth_ != 1) return true;
        chat_ |= text == kChatKey;
        key_.reset();
        for (std::size_t k = 0; k < kKeys; ++k) {
            if (text != kKeyNames[k]) continue;
            if (seen_[k]) return fail(fmt::format("key `{}` stands twice", text));
            seen_[k] = true;
            key_ = static_cast<Key>(k);
        }
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
        std::string text =
            error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
        const std::size_t start = text.find("column ");
        return fail(fmt::format("expected a JSON object, {}",
                                start == std::string::npos ? text : "at " + text.substr(start)));
    }

  private:
    bool at_key(Key key) const { return key_ == key; }
    bool at(Key key) const { return depth_ == 1 && key_ == key; }
    bool hash_expected() const { return depth_ == 2 && key_ == kHashes; }

    bool number(std::int64_t value, std::string text) {
        if (at(kStamp)) {
            stamp_ = std::move(text);
            return true;
        }
        const bool input = at(kInput);
        if (!input && !at(kOutput)) return other(text);
        // As in CSV: an empty prompt cannot be served, an empty answer is a failed request.
        const std::int64_t min = input ? 1 : 0;
        if (value < min || value > kMaxTraceTokens) return wrong(text);
        (input ? row_.prompt_tokens : row_.output_tokens) = value;
        return true;
    }
    // A value that none of our keys takes: a mistake where it stands at one of them.
    bool other(std::string_view text) {
        return depth_ == 0 ? fail(fmt::format("expected an object, got {}", text))
               : key_ && (depth_ == 1 || key_ == kHashes) ? wrong(text)
                                                          : true;
    }
    bool wrong(std::string_view text) {
        constexpr std::array<std::string_view, kKeys> kExpected{
            "a time", "a whole number of tokens from 1 to 1000000000",
            "a whole number of tokens from 0 to 1000000000", "a list of whole numbers"};
        return fail(fmt::format("{}: expected {}, got `{}`", kKeyNames[*key_], kExpected[*key_], text));
    }
    bool fail(std::string text) {
        if (!mistake_) mistake_ = std::move(text);
        return false;
    }

    std::vector<std::uint64_t>& blocks_;
    TraceRow row_;
    std::string stamp_;
    std::optional<Key> key_;  // of ours, at depth 1
    std::array<bool, kKeys> seen_{};
    bool chat_ = false;
    int depth_ = 0;
    std::optional<std::string> mistake_;
};

}  // namespace

TraceRows read_json_rows(std::span<const std::string_view> lines, std::size_t limit,
                         TraceMistakes& mistakes) {
    TraceRows trace;
    const std::size_t end = std::min(lines.size(), limit);
    trace.rows.reserve(end);
    RowReader reader(trace.blocks);
    std::optional<bool> chat;  // as the first row
    for (std::size_t i = 0; i < end; ++i) {
        const int line = static_cast<int>(i) + 1;
        if (const std::optional<std::string> mistake = reader.read(lines[i])) {
            mistakes.add(line, 0, *mistake);
            continue;
        }
        if (!chat) chat = reader.chat();
        const StampUnit unit = *chat ? StampUnit::kSeconds : StampUnit::kMilliseconds;
        const std::optional<Stamp> stamp = parse_elapsed(reader.stamp(), unit);
        if (!stamp) {
            mistakes.add(line, 0,
                         fmt::format("timestamp: expected {} without sign or exponent, got `{}`",
                                     *chat ? "seconds" : "milliseconds", reader.stamp()));
            continue;
        }
        trace.rows.push_back(reader.row());
        trace.rows.back().stamp = *stamp;
        trace.rows.back().line = line;
    }
    if (!trace.blocks.empty()) trace.block_tokens = *chat ? kBailianBlock : kMooncakeBlock;
    return trace;
}

}  // namespace kvsim
