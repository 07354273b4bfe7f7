#include "sim/cost/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/traffic_linear.hpp"
#include "sim/base/check.hpp"
#include "sim/base/file.hpp"
#include "sim/base/text.hpp"

namespace kvsim {

namespace {

constexpr std::array<std::string_view, 4> kProbes{"empty", "stream_copy", "stream_read", "stream_append"};

// Reads one file; collects rows and mistakes.
class FileReader {
  public:
    FileReader(std::string file, Profile& profile, std::vector<Mistake>& mistakes)
        : file_(std::move(file)), profile_(profile), mistakes_(mistakes) {}

    void read() {
        std::string content;
        try {
            content = read_csv_file(file_);
        } catch (const ConfigError& error) {
            mistakes_.insert(mistakes_.end(), error.mistakes().begin(), error.mistakes().end());
            return;
        }
        bool header = false;
        int number = 0;
        for (const std::string_view text : split_lines(content)) {
            ++number;
            if (text.empty()) continue;
            if (header) {
                ++rows_;
                read_row(text, number);
            } else if (read_header(text, number)) {
                header = true;
            } else {
                return;  // without its columns a file cannot be read any further
            }
        }
        if (!header) return note(1, "", "expected a header line, got an empty file");
        if (rows_ == 0) note(1, "", "expected rows after the header line, got none");
    }

  private:
    void note(int line, std::string_view column, std::string message) {
        mistakes_.push_back(profile_mistake(file_, line, column, std::move(message)));
    }

    bool read_header(std::string_view text, int line) {
        const auto known = profile_columns();
        std::vector<std::string_view> names;
        for (const ProfileColumn& c : known) names.push_back(c.name);
        const std::size_t before = mistakes_.size();
        for (const std::string_view cell : split_cells(text)) {
            const auto column =
                std::find_if(known.begin(), known.end(), [&](const auto& c) { return c.name == cell; });
            if (column == known.end()) {
                note(line, cell, fmt::format("unknown column{}", suggestion(cell, names)));
            } else if (std::find(columns_.begin(), columns_.end(), &*column) != columns_.end()) {
                note(line, cell, "column appears twice");
            } else {
                columns_.push_back(&*column);
            }
        }
        for (const ProfileColumn& c : known) {
            if (std::find(columns_.begin(), columns_.end(), &c) == columns_.end())
                note(line, c.name, "missing column");
        }
        return mistakes_.size() == before;
    }

    void read_row(std::string_view text, int line) {
        const std::vector<std::string_view> cells = split_cells(text);
        if (cells.size() != columns_.size()) {
            return note(line, "", fmt::format("expected {} cells, got {}", columns_.size(), cells.size()));
        }
        const std::size_t before = mistakes_.size();
        MeasuredRow measured{{}, {file_, line, 0}};
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (!columns_[i]->parse(measured.row, cells[i])) {
                note(line, columns_[i]->name,
                     fmt::format("expected {}, got `{}`", columns_[i]->help, cells[i]));
            }
        }
        if (mistakes_.size() == before) check(measured.row, line);
        if (mistakes_.size() == before) profile_.rows.push_back(std::move(measured));
    }

    template <class T>
    void require_above(const std::optional<T>& value, std::string_view column, T bound, int line) {
        if (!value) {
            note(line, column, "expected a value, got an empty cell");
        } else if (!(*value > bound)) {
            note(line, column, fmt::format("expected a value above {}, got {}", bound, *value));
        }
    }

    template <class T>
    void require(const std::optional<T>& value, std::string_view column, int line) {
        if (!value) note(line, column, "expected a value, got an empty cell");
    }

    // Beyond any launch: a slip of the pen, which would bend a whole fit.
    void check_sizes(const ProfileRow& r, int line) {
        constexpr std::int64_t kMost = std::int64_t{1} << 40;
        constexpr double kLeastUs = 1e-6, kMostUs = 1e9;
        const std::pair<std::string_view, std::optional<std::int64_t>> sizes[] = {
            {"k_heads", r.k_heads},
            {"v_heads", r.v_heads},
            {"k_dim", r.k_dim},
            {"v_dim", r.v_dim},
            {"batch", r.batch},
            {"tokens", r.tokens},
            {"buffer_length", r.buffer_length},
            {"buffered_tokens", r.buffered_tokens},
            {"bytes", r.bytes}};
        // Rows times records, heads times channels: a product of two is no more either.
        constexpr std::int64_t kMostEach = std::int64_t{1} << 20;
        for (const auto& [column, size] : sizes) {
            const bool product = column == "buffered_tokens" || column == "bytes";
            const std::int64_t most = product ? kMost : kMostEach;
            if (size && *size > most)
                note(line, column, fmt::format("expected at most {}, got {}", most, *size));
        }
        if (r.time_us && *r.time_us > 0.0 && (*r.time_us < kLeastUs || *r.time_us > kMostUs))
            note(line, "time_us",
                 fmt::format("expected {:g} to {:g}, got {}", kLeastUs, kMostUs, *r.time_us));
    }

    // What a row needs so that it can be fitted.
    void check(const ProfileRow& r, int line) {
        require_above(r.time_us, "time_us", 0.0, line);
        check_sizes(r, line);
        if (r.kernel == "empty") return;
        if (std::find(kProbes.begin(), kProbes.end(), r.kernel) != kProbes.end()) {
            require_above(r.bytes, "bytes", std::int64_t{0}, line);
            return;
        }
        require(r.family, "family", line);
        require(r.form, "form", line);
        require(r.state_dtype, "state_dtype", line);
        require(r.l2, "l2", line);
        require_above(r.k_heads, "k_heads", std::int64_t{0}, line);
        require_above(r.v_heads, "v_heads", std::int64_t{0}, line);
        require_above(r.k_dim, "k_dim", std::int64_t{0}, line);
        require_above(r.v_dim, "v_dim", std::int64_t{0}, line);
        require_above(r.batch, "batch", std::int64_t{0}, line);
        require_above(r.tokens, "tokens", std::int64_t{0}, line);
        if (r.form && has_ring(*r.form)) check_ring(r, line);
        if (r.verified != true)
            note(line, "verified", "expected true: a time without a verified output counts for nothing");
    }

    void check_ring(const ProfileRow& r, int line) {
        require(r.records, "records", line);
        require_above(r.buffer_length, "buffer_length", std::int64_t{0}, line);
        require_above(r.buffered_tokens, "buffered_tokens", std::int64_t{-1}, line);
        require_above(r.flush_rows, "flush_rows", std::int64_t{-1}, line);
        if (!r.batch || *r.batch <= 0 || !r.tokens) return;
        if (r.flush_rows && *r.flush_rows > *r.batch) {
            note(line, "flush_rows",
                 fmt::format("expected at most batch = {}, got {}", *r.batch, *r.flush_rows));
        }
        // Every row has room for the records that it appends.
        if (!r.buffered_tokens || !r.buffer_length) return;
        const std::int64_t last_fill = *r.buffer_length - *r.tokens;
        if (*r.buffered_tokens > *r.batch * last_fill) {
            note(line, "buffered_tokens",
                 fmt::format("expected at most {} rows x {} records, got {}", *r.batch, last_fill,
                             *r.buffered_tokens));
        } else if (r.fill &&
                   (*r.buffered_tokens % *r.batch != 0 || *r.fill != *r.buffered_tokens / *r.batch)) {
            note(line, "fill",
                 fmt::format("expected buffered_tokens / batch = {} / {}, got {}", *r.buffered_tokens,
                             *r.batch, *r.fill));
        }
    }

    std::string file_;
    Profile& profile_;
    std::vector<Mistake>& mistakes_;
    int rows_ = 0;
    std::vector<const ProfileColumn*> columns_;
};

// Rows of one launch under one protocol: which of their times a fit should take, nobody could say.
void refuse_repeated(const std::vector<MeasuredRow>& rows, std::vector<Mistake>& mistakes) {
    constexpr std::array<std::string_view, 18> kWhatRan{
        "kernel",      "family",  "form",  "k_heads",       "v_heads", "k_dim",           "v_dim",
        "state_dtype", "records", "batch", "buffer_length", "fill",    "buffered_tokens", "flush_rows",
        "tokens",      "bytes",   "l2",    "sets"};
    std::map<std::string, const MeasuredRow*> first;
    for (const MeasuredRow& row : rows) {
        std::string key;
        for (const ProfileColumn& column : profile_columns()) {
            if (std::find(kWhatRan.begin(), kWhatRan.end(), column.name) != kWhatRan.end())
                key += column.format(row.row) + ',';
        }
        const auto [known, fresh] = first.emplace(std::move(key), &row);
        if (!fresh)
            mistakes.push_back(
                profile_mistake(row.place.file, row.place.line, "",
                                fmt::format("the same launch as in {}:{}", known->second->place.file,
                                            known->second->place.line)));
    }
}

}  // namespace

Profile load_profile(const std::string& folder) {
    namespace fs = std::filesystem;
    std::error_code error;
    std::vector<std::string> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() == ".csv") files.push_back(entry.path().string());
    }
    if (error)
        throw ConfigError(profile_mistake(folder, 0, "", fmt::format("cannot be read: {}", error.message())));
    std::sort(files.begin(), files.end());  // the order of a folder is the file system's own

    Profile profile{folder, {}};
    std::vector<Mistake> mistakes;
    for (const std::string& file : files) FileReader(file, profile, mistakes).read();
    refuse_repeated(profile.rows, mistakes);
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
    if (profile.rows.empty())
        throw ConfigError(profile_mistake(folder, 0, "", "expected measured rows in *.csv, got none"));
    return profile;
}

HeldOut held_out_for(const ProfileRow& row) {
    const auto among = [](const std::optional<std::int64_t>& value,
                          std::initializer_list<std::int64_t> list) {
        return value && std::find(list.begin(), list.end(), *value) != list.end();
    };
    return {among(row.batch, {24, 48, 96, 192, 384}), among(row.v_heads, {48}),
            among(row.buffer_length, {8, 32}), among(row.tokens, {3, 6})};
}

bool usable(const ProfileRow& row) {
    if (row.kernel == "stream_append") return false;
    return row.kernel == "empty" || row.l2 != L2State::kWarm;
}

bool is_linear(const ProfileRow& row) {
    return std::find(kProbes.begin(), kProbes.end(), row.kernel) == kProbes.end();
}

LinearLaunch launch_of(const ProfileRow& r) {
    KVSIM_CHECK(r.family && r.form && r.k_heads && r.v_heads && r.k_dim && r.v_dim && r.state_dtype &&
                    r.batch && r.tokens,
                "{}: an incomplete row", r.kernel);
    LinearLaunch l;
    l.shape = {*r.family,
               static_cast<int>(*r.k_heads),
               static_cast<int>(*r.v_heads),
               static_cast<int>(*r.k_dim),
               static_cast<int>(*r.v_dim),
               *r.state_dtype,
               r.records.value_or(RecordFormat::kBf16)};
    l.form = *r.form;
    if (has_ring(l.form)) l.ring_capacity = static_cast<int>(r.buffer_length.value_or(0));
    l.work = {*r.batch, *r.batch * *r.tokens, r.buffered_tokens.value_or(0), r.flush_rows.value_or(0), 0};
    if (l.work.flushes > 0) {
        // In mixed phases, which have no common fill, the rows that flush are those with room for no more.
        const std::int64_t read = r.fill ? *r.fill : r.buffer_length.value_or(*r.tokens) - *r.tokens;
        l.work.flushed_tokens = l.work.flushes * folded_records(l.form, read);
    }
    return l;
}

}  // namespace kvsim
