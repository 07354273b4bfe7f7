#include <fmt/format.h>

#include <cmath>

#include "sim/cost/fit_text.hpp"
#include "sim/cost/least_squares.hpp"
#include "sim/cost/tables/families.hpp"

namespace kvsim {

namespace {

// Deviations beyond this relative error count by their size, not by their square: a table holds rows that
// measured something else (a library's wrong choice of kernel, a clock that dropped), and they must not bend
// the law.
constexpr double kOutlier = 0.1;
// Of the data sheet's bandwidth: refresh and turns between reads and writes leave no kernel more.
constexpr double kMostOfPeak = 0.95;
constexpr double kSigmaQuantile = 2.0 / 3.0;
constexpr std::size_t kFewRows = 20;  // fewer of a regime say nothing about it

double soft_l1(double r) {
    const double z = r / kOutlier;
    return std::copysign(kOutlier * std::sqrt(2.0 * (std::sqrt(1.0 + z * z) - 1.0)), r);
}

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

template <class Law>
Law fit_law(const std::vector<const TableRow<typename Law::Work>*>& rows, const Gpu& gpu) {
    constexpr auto& table = kLawParameters<Law>;
    std::array<BoundedParameter, table.size()> bounds;
    for (std::size_t i = 0; i < table.size(); ++i) {
        bounds[i] = table[i].bounds;
        if (table[i].name.starts_with("dram_")) {
            bounds[i].max = kMostOfPeak * gpu.peak_bytes * 1e-3;  // GB/s from bytes per us
            bounds[i].initial = std::min(bounds[i].initial, 0.8 * bounds[i].max);
        }
    }
    Law law =
        law_of<Law>(least_squares(bounds, rows.size(), [&](std::span<const double> p, std::span<double> r) {
            const Law trial = law_of<Law>(p);
            for (std::size_t i = 0; i < r.size(); ++i)
                r[i] = soft_l1(std::log(trial.time(rows[i]->work, gpu).us / rows[i]->us));
        }));
    for (const auto& p : table) law.*(p.member) = six_digits(law.*(p.member));
    return law;
}

// Errors of a law on a table, apart by group and regime.
struct Judgement {
    std::vector<double> fitted, held_out;
    std::array<std::vector<double>, kRegimeCount> by_regime;  // held out
};

template <class Law>
Judgement judge(const FamilyFit<Law>& fit, const Table<Law>& table, const Gpu& gpu) {
    Judgement j;
    for (const auto& row : table.rows) {
        const LawTime t = fit.law.time(row.work, gpu);
        const double error = std::abs(t.us / row.us - 1.0);
        if (!held_out(row.group)) {
            j.fitted.push_back(error);
        } else {
            j.held_out.push_back(error);
            j.by_regime[static_cast<std::size_t>(t.regime)].push_back(error);
        }
    }
    return j;
}

template <class Law>
FamilyFit<Law> fit_family(std::string_view name, const Table<Law>& table, const Gpu& gpu,
                          const std::string& folder) {
    FamilyFit<Law> fit;
    fit.kernel = table.kernel;
    std::vector<const TableRow<typename Law::Work>*> seen;
    for (const auto& row : table.rows) {
        if (!held_out(row.group)) seen.push_back(&row);
        const auto at = Law::axes(row.work);
        for (std::size_t i = 0; i < at.size(); ++i) fit.range[i].include(at[i]);
    }
    const std::size_t needed = kLawParameters<Law>.size();
    if (seen.size() < needed || seen.size() == table.rows.size()) {
        throw ConfigError(profile_mistake(
            folder, 0, "",
            fmt::format("{}: expected at least {} rows in even groups and some in odd ones, got {} and {}",
                        name, needed, seen.size(), table.rows.size() - seen.size())));
    }
    fit.law = fit_law<Law>(seen, gpu);
    const Judgement j = judge(fit, table, gpu);
    fit.fitted = summarise_errors(j.fitted);
    fit.held_out = summarise_errors(j.held_out);
    for (std::size_t r = 0; r < fit.sigma.size(); ++r) {
        fit.sigma[r] =
            quantile(j.by_regime[r].size() < kFewRows ? j.held_out : j.by_regime[r], kSigmaQuantile);
    }
    return fit;
}

}  // namespace

PublishedFit fit_published(const PublishedTables& tables, const DeviceSpec& device, TableSource source) {
    PublishedFit fit;
    fit.origin = tables.folder;
    fit.device = device.name;
    fit.source = std::move(source);
    const Gpu gpu = gpu_of(device);
    for_each_family(
        [&](std::string_view name, auto& slot, const auto& table) {
            if (!table.rows.empty()) slot = fit_family(name, table, gpu, tables.folder);
        },
        fit.families, tables.families);
    return fit;
}

std::vector<FamilyErrors> validate_published(const PublishedTables& tables, const PublishedFit& fit,
                                             const DeviceSpec& device) {
    std::vector<FamilyErrors> all;
    const Gpu gpu = gpu_of(device);
    for_each_family(
        [&](std::string_view name, const auto& slot, const auto& table) {
            if (table.rows.empty()) return;
            if (!slot) {
                throw ConfigError(profile_mistake(
                    fit.origin, 0, "",
                    fmt::format("has no {}, of which {} holds a table", name, tables.folder)));
            }
            FamilyErrors& e = all.emplace_back();
            e.family = name;
            e.kernel = table.kernel;
            const Judgement j = judge(*slot, table, gpu);
            e.fitted = summarise_errors(j.fitted);
            e.held_out = summarise_errors(j.held_out);
            for (const auto& row : table.rows)
                e.rows.push_back({row.place, held_out(row.group), row.us, slot->law.time(row.work, gpu).us});
        },
        fit.families, tables.families);
    return all;
}

}  // namespace kvsim
