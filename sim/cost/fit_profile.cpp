// fit_profile: laws from measured rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>

#include "sim/base/error.hpp"
#include "sim/base/percentile.hpp"
#include "sim/cost/fit_text.hpp"

namespace kvsim {

namespace {

// A fit of its own asks for so many rows per parameter, and so does each side of a split.
constexpr std::size_t kRowsPerParameter = 2;
// One law is enough while the root mean square of log(predicted / measured) is below the first number; two
// are worth their parameters if they bring it below the second times what one law leaves.
constexpr double kGoodResidual = 0.02;
constexpr double kSplitGain = 0.75;
// Ends whose squares differ by less are the same, up to rounding.
constexpr double kSameEnd = 1e-6;

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

std::string too_few(std::string_view what, std::size_t needed, std::size_t rows) {
    return fmt::format("{}: expected at least {} rows to fit, got {}", what, needed, rows);
}

template <class Law>
using Bounds = std::array<BoundedParameter, kLawParameters<Law>.size()>;

template <class Law>
Bounds<Law> default_bounds() {
    Bounds<Law> bounds;
    for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = kLawParameters<Law>[i].bounds;
    return bounds;
}

// As default_bounds(), but starting at `law`; all but the parameters of records stay there if `pinned`.
template <class Law>
Bounds<Law> bounds_around(const Law& law, bool pinned) {
    Bounds<Law> bounds = default_bounds<Law>();
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        const auto& p = kLawParameters<Law>[i];
        bounds[i].initial = law.*(p.member);
        if (pinned && !p.of_records) bounds[i].min = bounds[i].max = bounds[i].initial;
    }
    return bounds;
}

// Least squares of the logarithm of the ratio of times. predict(law, i) is the time of measurement i. A law
// that takes the greater of two times has edges, on which a descent can end too early: of descents from the
// initial parameters, their halves and their doubles the lowest end counts.
template <class Law, class Predict>
Law fit_law(const Bounds<Law>& bounds, std::span<const double> measured_us, Predict predict) {
    constexpr auto& table = kLawParameters<Law>;
    const Residuals residuals = [&](std::span<const double> p, std::span<double> r) {
        const Law trial = law_of<Law>(p);
        for (std::size_t i = 0; i < r.size(); ++i) r[i] = std::log(predict(trial, i) / measured_us[i]);
    };
    Law law;
    double least = std::numeric_limits<double>::infinity();
    std::vector<double> left(measured_us.size());
    for (const double scale : {1.0, 0.5, 2.0}) {
        Bounds<Law> start = bounds;
        for (BoundedParameter& b : start) b.initial = std::clamp(b.initial * scale, b.min, b.max);
        const std::vector<double> end = least_squares(start, left.size(), residuals);
        residuals(end, left);
        const double squares = std::inner_product(left.begin(), left.end(), left.begin(), 0.0);
        if (squares >= least * (1.0 - kSameEnd)) continue;
        least = squares;
        law = law_of<Law>(end);
    }
    for (const auto& p : table) law.*(p.member) = six_digits(law.*(p.member));
    return law;
}

StreamFit fit_stream(const Profile& profile, std::string_view kernel, double node_us) {
    const Rows rows = rows_of(profile, kernel);
    if (constexpr std::size_t kNeeded = kLawParameters<StreamLaw>.size(); rows.size() < kNeeded)
        refuse(profile, too_few(fmt::format("kernel {}", kernel), kNeeded, rows.size()));
    std::vector<double> measured, bytes;
    StreamFit fit;
    for (const MeasuredRow* m : rows) {
        measured.push_back(*m->row.time_us);
        bytes.push_back(static_cast<double>(*m->row.bytes));
        fit.bytes.include(bytes.back());
    }
    const auto predict = [&](const StreamLaw& law, std::size_t i) { return node_us + law.time_us(bytes[i]); };
    fit.law = fit_law<StreamLaw>(default_bounds<StreamLaw>(), measured, predict);
    std::vector<double> errors;
    for (std::size_t i = 0; i < rows.size(); ++i)
        errors.push_back(std::abs(predict(fit.law, i) / measured[i] - 1.0));
    fit.fitted = summarise_errors(std::move(errors));
    return fit;
}

// A measured launch.
struct Sample {
    LinearDemand demand;
    double us = 0.0;

    double state_bytes() const { return demand.rows * demand.row_state; }
};

// What all kernels of a device share.
struct Roof {
    double node_us = 0.0;
    double read_gb_per_s = 0.0;

    template <class Law>
    double time_us(const Law& law, const Sample& s) const {
        return node_us + law.time_us(s.demand, read_gb_per_s);
    }
};

template <class Law>
Law fit_samples(std::span<const Sample> samples, const Roof& roof, const Bounds<Law>& bounds) {
    std::vector<double> measured;
    for (const Sample& s : samples) measured.push_back(s.us);
    return fit_law<Law>(bounds, measured,
                        [&](const Law& law, std::size_t i) { return roof.time_us(law, samples[i]); });
}

// Sum of squares of what fit_law makes least.
template <class Law>
double squares(std::span<const Sample> samples, const Roof& roof, const Law& law) {
    double sum = 0.0;
    for (const Sample& s : samples) sum += std::pow(std::log(roof.time_us(law, s) / s.us), 2);
    return sum;
}

// One law, or two with the boundary that leaves the least, if that is much less. Sorts the samples.
template <class Law>
std::vector<LinearRegime> fit_regimes(std::vector<Sample>& samples, const Roof& roof) {
    std::stable_sort(samples.begin(), samples.end(),
                     [](const Sample& a, const Sample& b) { return a.state_bytes() < b.state_bytes(); });
    const std::span<const Sample> all(samples);
    const Law one = fit_samples<Law>(all, roof, default_bounds<Law>());
    const double of_one = squares(all, roof, one);
    std::vector<LinearRegime> regimes{{.law = one}};
    const auto rows = static_cast<double>(all.size());
    if (std::sqrt(of_one / rows) < kGoodResidual) return regimes;
    double least = kSplitGain * kSplitGain * of_one;
    const std::size_t side = kRowsPerParameter * kLawParameters<Law>.size();
    const Bounds<Law> near_one = bounds_around(one, false);
    for (std::size_t i = side; i + side <= all.size(); ++i) {
        const double below = all[i - 1].state_bytes(), above = all[i].state_bytes();
        if (below == above) continue;
        const Law small = fit_samples<Law>(all.first(i), roof, near_one);
        const Law large = fit_samples<Law>(all.subspan(i), roof, near_one);
        const double of_two = squares(all.first(i), roof, small) + squares(all.subspan(i), roof, large);
        if (of_two >= least) continue;
        least = of_two;
        regimes = {{.max_state_bytes = std::round(std::sqrt(below * above)), .law = small}, {.law = large}};
    }
    return regimes;
}

// Rows of one kernel, by what a fit needs to be exact about.
struct Group {
    LinearFit fit;  // its key
    Rows rows;

    std::vector<Sample> samples() const {  // that a fit sees
        std::vector<Sample> samples;
        for (const MeasuredRow* m : rows) {
            if (!held_out(m->row)) samples.push_back(sample(*m));
        }
        return samples;
    }
    static Sample sample(const MeasuredRow& m) {
        const LinearLaunch l = launch_of(m.row);
        return {linear_demand(l, linear_traffic(l.shape, l.form, l.work)), *m.row.time_us};
    }
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
            key.records = shape.records;
            key.k_dim = shape.k_dim;
            key.v_dim = shape.v_dim;
            group = groups.insert(groups.end(), Group{std::move(key), {}});
        }
        group->rows.push_back(&m);
    }
    return groups;
}

// The kernel that differs in the record format alone and has a law of its own.
const LinearFit* other_records(const std::vector<Group>& groups, const LinearFit& fit) {
    if (!has_ring(fit.form)) return nullptr;
    for (const Group& g : groups) {
        const LinearFit& other = g.fit;
        if (other.form == fit.form && other.family == fit.family && other.state == fit.state &&
            other.k_dim == fit.k_dim && other.v_dim == fit.v_dim && other.records != fit.records &&
            !other.regimes.empty() && !other.borrowed)
            return &other;
    }
    return nullptr;
}

// Samples of a form with a ring that one of its kernels served. Kernels of others are short blocks all.
std::vector<Sample> served_by(BufferedKernel kernel, const LinearFit& fit,
                              const std::vector<Sample>& samples) {
    const bool ours = fit.ours();
    std::vector<Sample> served;
    std::copy_if(samples.begin(), samples.end(), std::back_inserter(served), [&](const Sample& s) {
        return kernel == (ours ? s.demand.kernel : BufferedKernel::kSmall);
    });
    return served;
}

// The laws that a group's samples suffice for, with so many of them a parameter: of a form with a ring one
// per kernel that serves them, the last of which may stand in for the first; or else one or two by size.
// Empty if they do not suffice.
std::vector<LinearRegime> own_regimes(const LinearFit& fit, std::vector<Sample>& samples, const Roof& roof,
                                      std::size_t rows_per_parameter) {
    std::vector<LinearRegime> regimes;
    if (!has_ring(fit.form)) {
        with_law_of(fit.form, BufferedKernel::kPipelined, [&]<class Law>(Law) {
            if (samples.size() >= rows_per_parameter * kLawParameters<Law>.size())
                regimes = fit_regimes<Law>(samples, roof);
        });
        return regimes;
    }
    for (const BufferedKernel kernel : {BufferedKernel::kSmall, BufferedKernel::kPipelined}) {
        const std::vector<Sample> served = served_by(kernel, fit, samples);
        if (served.empty()) continue;
        with_law_of(fit.form, kernel, [&]<class Law>(Law) {
            if (served.size() >= rows_per_parameter * kLawParameters<Law>.size()) {
                regimes.push_back(
                    {.kernel = kernel, .law = fit_samples<Law>(served, roof, default_bounds<Law>())});
            } else if (kernel == BufferedKernel::kPipelined) {
                regimes.clear();
            }
        });
    }
    return regimes;
}

// The law of `other` for the kernel that serves all record formats; what depends on records is fitted to the
// samples, if there are enough.
std::vector<LinearRegime> borrow_regimes(const LinearFit& fit, const LinearFit& other,
                                         const std::vector<Sample>& samples, const Roof& roof) {
    LinearRegime regime = other.regimes.back();
    const auto refit = [&]<class Law>(Law& law) {
        constexpr auto& table = kLawParameters<Law>;
        const auto of_records =
            std::count_if(table.begin(), table.end(), [](const auto& p) { return p.of_records; });
        const std::vector<Sample> served = served_by(regime.kernel, fit, samples);
        if (served.size() >= static_cast<std::size_t>(of_records))
            law = fit_samples<Law>(served, roof, bounds_around(law, true));
    };
    std::visit(refit, regime.law);
    return {regime};
}

// Range and errors of a group whose laws are known.
void judge(Group& group, const Roof& roof) {
    LinearFit& fit = group.fit;
    std::vector<double> fitted, held;
    for (const MeasuredRow* m : group.rows) {
        const LinearLaunch l = launch_of(m->row);
        const LinearTraffic traffic = linear_traffic(l.shape, l.form, l.work);
        const LinearDemand demand = linear_demand(l, traffic);
        fit.k_heads.include(l.shape.k_heads);
        fit.v_heads.include(l.shape.v_heads);
        fit.batch.include(demand.rows);
        fit.tokens.include(demand.tokens_per_row);
        fit.records_per_row.include(demand.records_per_row);
        fit.bytes.include(static_cast<double>(traffic.total()));
        const double error =
            std::abs((roof.node_us + fit.time_us(demand, roof.read_gb_per_s)) / *m->row.time_us - 1.0);
        (held_out(m->row) ? held : fitted).push_back(error);
    }
    fit.fitted = summarise_errors(std::move(fitted));
    fit.held_out = summarise_errors(std::move(held));
}

// Parameters of the law of a form's last kernel; 0: no law.
std::size_t parameters_of(Form form) {
    std::size_t count = 0;
    with_law_of(form, BufferedKernel::kPipelined,
                [&]<class Law>(Law) { count = kLawParameters<Law>.size(); });
    return count;
}

// Every group's laws: first of those with rows for laws of their own, then of those that borrow. Who has
// nobody to borrow from makes do with a row per parameter.
void fit_linear(const Profile& profile, std::vector<Group>& groups, const Roof& roof) {
    for (const bool borrowing : {false, true}) {
        for (Group& group : groups) {
            LinearFit& fit = group.fit;
            if (!fit.regimes.empty()) continue;
            if (parameters_of(fit.form) == 0)
                refuse(profile, fmt::format("kernel {}: no law for form {}", fit.kernel, name(fit.form)));
            std::vector<Sample> samples = group.samples();
            const LinearFit* other = borrowing ? other_records(groups, fit) : nullptr;
            if (other != nullptr) {
                fit.borrowed = true;
                fit.regimes = borrow_regimes(fit, *other, samples, roof);
                continue;
            }
            fit.regimes = own_regimes(fit, samples, roof, borrowing ? 1 : kRowsPerParameter);
            if (borrowing && fit.regimes.empty())
                refuse(profile, too_few(fmt::format("kernel {} with state {}", fit.kernel, name(fit.state)),
                                        parameters_of(fit.form), samples.size()));
        }
    }
}

}  // namespace

ProfileFit fit_profile(const Profile& profile) {
    ProfileFit fit;
    fit.origin = profile.folder;
    std::vector<double> empty;
    for (const MeasuredRow* m : rows_of(profile, "empty")) empty.push_back(*m->row.time_us);
    std::sort(empty.begin(), empty.end());
    fit.empty_node =
        time_from_us(percentile(static_cast<std::int64_t>(empty.size()), 0.5,
                                [&](std::int64_t i) { return empty[static_cast<std::size_t>(i)]; }));
    const double node_us = to_us(fit.empty_node);
    fit.copy = fit_stream(profile, "stream_copy", node_us);
    fit.read = fit_stream(profile, "stream_read", node_us);
    const Roof roof{node_us, fit.read.law.gb_per_s};
    std::vector<Group> groups = linear_groups(profile);
    fit_linear(profile, groups, roof);
    for (Group& group : groups) {
        judge(group, roof);
        fit.linear.push_back(std::move(group.fit));
    }
    return fit;
}

}  // namespace kvsim
