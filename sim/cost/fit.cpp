#include "sim/cost/fit.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <span>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/base/percentile.hpp"

namespace kvsim {

namespace {

using Rows = std::vector<const MeasuredRow*>;

[[noreturn]] void refuse(const Profile& profile, std::string message) {
    throw ConfigError(profile_mistake(profile.folder, 0, "", std::move(message)));
}

Rows rows_of(const Profile& profile, std::string_view kernel) {
    Rows rows;
    for (const MeasuredRow& m : profile.rows) {
        if (m.row.kernel == kernel && usable(m.row)) rows.push_back(&m);
    }
    if (rows.empty()) refuse(profile, fmt::format("expected cold rows of kernel {}, got none", kernel));
    return rows;
}

double percentile_of(std::span<const double> sorted, double q) {
    return percentile(static_cast<std::int64_t>(sorted.size()), q,
                      [&](std::int64_t rank) { return sorted[static_cast<std::size_t>(rank)]; });
}

template <class Law>
void require_rows(const Profile& profile, std::string_view kernel, std::size_t rows) {
    constexpr std::size_t needed = kLawParameters<Law>.size();
    if (rows < needed) {
        refuse(profile,
               fmt::format("kernel {}: expected at least {} rows to fit, got {}", kernel, needed, rows));
    }
}

std::vector<double> measured_us(const Rows& rows) {
    std::vector<double> times;
    for (const MeasuredRow* m : rows) times.push_back(*m->row.time_us);
    return times;
}

// Six significant digits, a thousand times finer than a fit is: fit.yaml can be read, and is the same on
// machines whose logarithms differ in the last bit.
double six_digits(double x) {
    return std::strtod(fmt::format("{:.6g}", x).c_str(), nullptr);
}

// Fits a law to measured times: least squares of the logarithm of the ratio. predict(law, i) is the law's
// time of row i.
template <class Law, class Predict>
Law fit_law(std::span<const double> measured, double node_us, Predict predict) {
    constexpr auto& table = kLawParameters<Law>;
    std::array<BoundedParameter, table.size()> bounds;
    for (std::size_t i = 0; i < table.size(); ++i) bounds[i] = table[i].bounds;
    const auto to_law = [](std::span<const double> p) {
        Law law;
        for (std::size_t i = 0; i < table.size(); ++i) law.*(table[i].member) = p[i];
        return law;
    };
    Law law =
        to_law(least_squares(bounds, measured.size(), [&](std::span<const double> p, std::span<double> r) {
            const Law trial = to_law(p);
            for (std::size_t i = 0; i < r.size(); ++i)
                r[i] = std::log((node_us + predict(trial, i)) / measured[i]);
        }));
    for (const auto& p : table) law.*(p.member) = six_digits(law.*(p.member));
    return law;
}

StreamFit fit_stream(const Profile& profile, std::string_view kernel, double node_us) {
    const Rows rows = rows_of(profile, kernel);
    require_rows<StreamLaw>(profile, kernel, rows.size());
    const std::vector<double> measured = measured_us(rows);
    StreamFit fit;
    const auto predict = [&](const StreamLaw& law, std::size_t i) {
        return law.time_us(static_cast<double>(*rows[i]->row.bytes));
    };
    fit.law = fit_law<StreamLaw>(measured, node_us, predict);
    std::vector<double> errors;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        fit.bytes.include(static_cast<double>(*rows[i]->row.bytes));
        errors.push_back(std::abs((node_us + predict(fit.law, i)) / measured[i] - 1.0));
    }
    fit.fitted = summarise_errors(std::move(errors));
    return fit;
}

// A launch with what follows from it.
struct Launch {
    LinearTraffic traffic;
    LinearDemand demand;

    explicit Launch(const LinearLaunch& l)
        : traffic(linear_traffic(l.shape, l.form, l.work)), demand(linear_demand(l, traffic)) {}
};

void include_range(LinearFit& fit, const LinearLaunch& l) {
    const Launch launch(l);
    fit.k_heads.include(l.shape.k_heads);
    fit.v_heads.include(l.shape.v_heads);
    fit.batch.include(static_cast<double>(l.work.sequences));
    fit.records.include(launch.demand.records_per_row);
    fit.bytes.include(static_cast<double>(launch.traffic.total()));
}

bool in_range(const LinearFit& fit, const LinearLaunch& l, const Launch& launch) {
    return fit.k_heads.contains(l.shape.k_heads) && fit.v_heads.contains(l.shape.v_heads) &&
           fit.batch.contains(static_cast<double>(l.work.sequences)) &&
           fit.records.contains(launch.demand.records_per_row) &&
           fit.bytes.contains(static_cast<double>(launch.traffic.total()));
}

template <class Law>
void fit_linear_law(const Profile& profile, const Rows& rows, double node_us, double read_gb_per_s,
                    LinearFit& fit) {
    Rows seen;
    for (const MeasuredRow* m : rows) {
        if (!held_out(m->row)) seen.push_back(m);
    }
    require_rows<Law>(profile, fit.kernel, seen.size());
    std::vector<LinearDemand> demands;
    for (const MeasuredRow* m : seen) {
        const LinearLaunch launch = launch_of(m->row);
        demands.push_back(Launch(launch).demand);
        include_range(fit, launch);
    }
    const Law law = fit_law<Law>(measured_us(seen), node_us, [&](const Law& l, std::size_t i) {
        return l.time_us(demands[i], read_gb_per_s);
    });
    fit.law = law;
    std::vector<double> fitted, held;
    for (const MeasuredRow* m : rows) {
        const double predicted = node_us + law.time_us(Launch(launch_of(m->row)).demand, read_gb_per_s);
        (held_out(m->row) ? held : fitted).push_back(std::abs(predicted / *m->row.time_us - 1.0));
    }
    fit.fitted = summarise_errors(std::move(fitted));
    fit.held_out = summarise_errors(std::move(held));
}

// Rows of one kernel, by what a fit needs to be exact about.
struct Group {
    LinearFit fit;  // its key
    Rows rows;
};

std::vector<Group> linear_groups(const Profile& profile) {
    std::vector<Group> groups;
    for (const MeasuredRow& m : profile.rows) {
        const ProfileRow& r = m.row;
        if (!is_linear(r) || !usable(r)) continue;
        const LinearShape shape = launch_of(r).shape;
        auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
            return g.fit.kernel == r.kernel && g.fit.matches(shape, *r.form);
        });
        if (group == groups.end()) {
            LinearFit key;
            key.kernel = r.kernel;
            key.form = *r.form;
            key.family = shape.family;
            key.state = shape.state;
            key.k_dim = shape.k_dim;
            key.v_dim = shape.v_dim;
            group = groups.insert(groups.end(), Group{std::move(key), {}});
        }
        group->rows.push_back(&m);
    }
    return groups;
}

}  // namespace

ErrorSummary summarise_errors(std::vector<double> errors) {
    if (errors.empty()) return {};
    std::sort(errors.begin(), errors.end());
    return {static_cast<std::int64_t>(errors.size()), percentile_of(errors, 0.5), percentile_of(errors, 0.9),
            errors.back()};
}

Bandwidth StreamFit::bandwidth(Bytes size) const {
    const auto n = static_cast<double>(size.value());
    return Bandwidth(n / (law.time_us(n) * 1e-6));
}

bool LinearFit::matches(const LinearShape& s, Form f) const {
    return form == f && family == s.family && state == s.state && k_dim == s.k_dim && v_dim == s.v_dim;
}

const LinearFit& ProfileFit::linear_fit(const LinearShape& s, Form form) const {
    for (const LinearFit& kernel : linear) {
        if (kernel.matches(s, form)) return kernel;
    }
    throw ConfigError(profile_mistake(
        origin, 0, "",
        fmt::format("the profile has no kernel for family {}, form {}, state {}, head {} x {}",
                    name(s.family), name(form), name(s.state), s.v_dim, s.k_dim)));
}

TimedSource ProfileFit::linear_time(const LinearLaunch& launch) const {
    return linear_time(linear_fit(launch.shape, launch.form), launch);
}

TimedSource ProfileFit::linear_time(const LinearFit& kernel, const LinearLaunch& l) const {
    KVSIM_CHECK(l.work.sequences > 0, "a launch of {} without rows", kernel.kernel);
    KVSIM_CHECK((l.work.flushes > 0) == (l.work.flushed_tokens > 0), "{} rows flush {} records",
                l.work.flushes, l.work.flushed_tokens);
    const Launch launch(l);
    const double beyond_us = std::visit(
        [&](const auto& law) { return law.time_us(launch.demand, read.law.gb_per_s); }, kernel.law);
    return {empty_node + time_from_us(beyond_us),
            in_range(kernel, l, launch) ? Source::kFitted : Source::kExtrapolated};
}

ProfileFit fit_profile(const Profile& profile) {
    ProfileFit fit;
    fit.origin = profile.folder;
    std::vector<double> empty = measured_us(rows_of(profile, "empty"));
    std::sort(empty.begin(), empty.end());
    fit.empty_node = time_from_us(percentile_of(empty, 0.5));
    const double node_us = to_us(fit.empty_node);
    fit.copy = fit_stream(profile, "stream_copy", node_us);
    fit.read = fit_stream(profile, "stream_read", node_us);
    const double read_gb_per_s = fit.read.law.gb_per_s;
    for (Group& group : linear_groups(profile)) {
        switch (group.fit.form) {
            case Form::kRecurrent:
                fit_linear_law<RecurrentLaw>(profile, group.rows, node_us, read_gb_per_s, group.fit);
                break;
            case Form::kBuffered:
                fit_linear_law<BufferedLaw>(profile, group.rows, node_us, read_gb_per_s, group.fit);
                break;
            default:
                refuse(profile,
                       fmt::format("kernel {}: no law for form {}", group.fit.kernel, name(group.fit.form)));
        }
        fit.linear.push_back(std::move(group.fit));
    }
    return fit;
}

}  // namespace kvsim
