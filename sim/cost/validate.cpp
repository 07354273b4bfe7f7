#include "sim/cost/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace kvsim {

namespace {

Time predict(const ProfileFit& fit, const ProfileRow& r) {
    if (r.kernel == "empty") return fit.empty_node;
    if (is_linear(r)) return fit.linear_time(launch_of(r)).time;
    const StreamFit& stream = r.kernel == "stream_copy" ? fit.copy : fit.read;
    return fit.empty_node + time_from_us(stream.law.time_us(static_cast<double>(*r.bytes)));
}

std::string describe(const ProfileRow& r) {
    if (!is_linear(r)) return r.bytes ? fmt::format("{} bytes", *r.bytes) : "";
    std::string text = fmt::format("batch {}, heads {}/{}", *r.batch, *r.k_heads, *r.v_heads);
    if (*r.tokens > 1) text += fmt::format(", {} tokens", *r.tokens);
    if (r.buffer_length) text += fmt::format(", length {}", *r.buffer_length);
    if (r.fill) {
        text += fmt::format(", fill {}", *r.fill);
    } else if (r.buffered_tokens) {
        text += ", mixed fills";
    }
    if (r.flush_rows.value_or(0) > 0) text += fmt::format(", {} flush", *r.flush_rows);
    return text;
}

std::string layer_of(const ProfileRow& r) {
    if (!is_linear(r)) return "";
    std::string text = fmt::format("{} {} {} {}x{}", name(*r.family), name(*r.form), name(*r.state_dtype),
                                   *r.v_dim, *r.k_dim);
    if (has_ring(*r.form)) text += fmt::format(", records {}", name(*r.records));
    return text;
}

// A row's error, with what parts are made by.
struct Judged {
    RowError error;
    const ProfileRow* row;
};

ErrorSummary summarise(const std::vector<const Judged*>& rows, bool held) {
    std::vector<double> errors;
    for (const Judged* j : rows) {
        if (j->error.held_out == held) errors.push_back(std::abs(j->error.error));
    }
    return summarise_errors(std::move(errors));
}

// Adds a part for every value of `key`, if there are several. describe(value) is its name.
template <class Key, class Describe>
void add_parts(ValidationRow& row, const std::vector<const Judged*>& judged, Key key, Describe describe) {
    std::map<decltype(key(ProfileRow{})), std::vector<const Judged*>> by_value;
    for (const Judged* j : judged) by_value[key(*j->row)].push_back(j);
    if (by_value.size() < 2) return;
    for (const auto& [value, rows] : by_value)
        row.parts.push_back({describe(value), summarise(rows, false), summarise(rows, true)});
}

ValidationRow summarise_kernel(const std::vector<Judged>& judged) {
    std::vector<const Judged*> all;
    for (const Judged& j : judged) all.push_back(&j);
    const ProfileRow& first = *judged.front().row;
    ValidationRow row;
    row.kernel = first.kernel;
    row.layer = layer_of(first);
    row.fitted = summarise(all, false);
    row.held_out = summarise(all, true);
    if (is_linear(first)) {
        add_parts(
            row, all, [](const ProfileRow& r) { return r.buffer_length.value_or(0); },
            [](std::int64_t length) { return fmt::format("length {}", length); });
        add_parts(
            row, all,
            [](const ProfileRow& r) { return std::pair(r.k_heads.value_or(0), r.v_heads.value_or(0)); },
            [](const auto& heads) { return fmt::format("heads {}/{}", heads.first, heads.second); });
        add_parts(
            row, all, [](const ProfileRow& r) { return r.tokens.value_or(0); },
            [](std::int64_t tokens) { return fmt::format("tokens {}", tokens); });
    }
    std::stable_sort(all.begin(), all.end(), [](const Judged* a, const Judged* b) {
        return a->error.held_out != b->error.held_out ? a->error.held_out
                                                      : std::abs(a->error.error) > std::abs(b->error.error);
    });
    all.resize(std::min(all.size(), kWorstRows));
    for (const Judged* j : all) row.worst.push_back(j->error);
    return row;
}

}  // namespace

std::vector<ValidationRow> validate(const Profile& profile, const ProfileFit& fit) {
    std::vector<std::pair<std::pair<std::string, std::string>, std::vector<Judged>>> kernels;
    for (const MeasuredRow& m : profile.rows) {
        if (!usable(m.row)) continue;
        const std::pair key(m.row.kernel, layer_of(m.row));
        auto found =
            std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.first == key; });
        if (found == kernels.end()) found = kernels.insert(kernels.end(), {key, {}});
        const Time predicted = predict(fit, m.row);
        found->second.push_back({{m.place, describe(m.row), held_out(m.row), time_from_us(*m.row.time_us),
                                  predicted, to_us(predicted) / *m.row.time_us - 1.0},
                                 &m.row});
    }
    std::vector<ValidationRow> table;
    for (const auto& [key, judged] : kernels) table.push_back(summarise_kernel(judged));
    return table;
}

std::string validation_csv(const Profile& profile, const ProfileFit& fit) {
    constexpr std::array<std::string_view, 14> kShape{
        "kernel",      "family",  "form",  "k_heads",       "v_heads", "k_dim",      "v_dim",
        "state_dtype", "records", "batch", "buffer_length", "fill",    "flush_rows", "tokens"};
    std::vector<const ProfileColumn*> shape;
    std::string text = "file,line";
    for (const ProfileColumn& column : profile_columns()) {
        if (std::find(kShape.begin(), kShape.end(), column.name) == kShape.end()) continue;
        shape.push_back(&column);
        text += fmt::format(",{}", column.name);
    }
    text += ",bytes,flops,measured_us,predicted_us,held_out\n";
    for (const MeasuredRow& m : profile.rows) {
        const ProfileRow& r = m.row;
        if (!usable(r)) continue;
        text += fmt::format("{},{}", m.place.file, m.place.line);
        for (const ProfileColumn* column : shape) text += fmt::format(",{}", column->format(r));
        std::int64_t bytes = r.bytes.value_or(0), flops = 0;
        if (is_linear(r)) {
            const LinearLaunch l = launch_of(r);
            const LinearTraffic traffic = linear_traffic(l.shape, l.form, l.work);
            bytes = traffic.total();
            flops = traffic.flops;
        }
        text +=
            fmt::format(",{},{},{},{},{}\n", bytes, flops, *r.time_us, to_us(predict(fit, r)), held_out(r));
    }
    return text;
}

}  // namespace kvsim
