#include "sim/cost/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

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
    std::string text = fmt::format("batch {}, v_heads {}", *r.batch, *r.v_heads);
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
    return fmt::format("{} {} {} {}x{}", name(*r.family), name(*r.form), name(*r.state_dtype), *r.v_dim,
                       *r.k_dim);
}

ErrorSummary summarise(const std::vector<RowError>& rows, bool held) {
    std::vector<double> errors;
    for (const RowError& e : rows) {
        if (e.held_out == held) errors.push_back(std::abs(e.error));
    }
    return summarise_errors(std::move(errors));
}

}  // namespace

std::vector<ValidationRow> validate(const Profile& profile, const ProfileFit& fit) {
    std::vector<ValidationRow> table;
    std::vector<std::vector<RowError>> errors;
    for (const MeasuredRow& m : profile.rows) {
        if (!usable(m.row)) continue;
        const std::string layer = layer_of(m.row);
        const auto found = std::find_if(table.begin(), table.end(), [&](const ValidationRow& v) {
            return v.kernel == m.row.kernel && v.layer == layer;
        });
        const auto index = static_cast<std::size_t>(found - table.begin());
        if (found == table.end()) {
            table.push_back({m.row.kernel, layer, {}, {}, {}});
            errors.emplace_back();
        }
        const Time predicted = predict(fit, m.row);
        errors[index].push_back({m.place, describe(m.row), held_out(m.row), time_from_us(*m.row.time_us),
                                 predicted, to_us(predicted) / *m.row.time_us - 1.0});
    }
    for (std::size_t i = 0; i < table.size(); ++i) {
        table[i].fitted = summarise(errors[i], false);
        table[i].held_out = summarise(errors[i], true);
        std::stable_sort(errors[i].begin(), errors[i].end(), [](const RowError& a, const RowError& b) {
            return a.held_out != b.held_out ? a.held_out : std::abs(a.error) > std::abs(b.error);
        });
        errors[i].resize(std::min(errors[i].size(), kWorstRows));
        table[i].worst = std::move(errors[i]);
    }
    return table;
}

}  // namespace kvsim
