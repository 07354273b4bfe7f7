#include "sim/cost/fit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/base/percentile.hpp"

namespace kvsim {

namespace {

// A kernel in words; its records only where it has any.
std::string describe(Family family, Form form, StateFormat state, RecordFormat records, int v_dim,
                     int k_dim) {
    return fmt::format("family {}, form {}, state {}{}, head {} x {}", name(family), name(form), name(state),
                       has_ring(form) ? fmt::format(", records {}", name(records)) : "", v_dim, k_dim);
}

}  // namespace

ErrorSummary summarise_errors(std::vector<double> errors) {
    if (errors.empty()) return {};
    std::sort(errors.begin(), errors.end());
    const auto rows = static_cast<std::int64_t>(errors.size());
    const auto at = [&](std::int64_t rank) { return errors[static_cast<std::size_t>(rank)]; };
    return {rows, percentile(rows, 0.5, at), percentile(rows, 0.9, at), errors.back()};
}

bool LinearFit::matches(const LinearShape& s, Form f) const {
    return form == f && family == s.family && state == s.state && (records == s.records || !has_ring(f)) &&
           k_dim == s.k_dim && v_dim == s.v_dim;
}

bool LinearFit::ours() const {
    return kernel == fmt::format("linear_{}", name(form));
}

const LinearRegime& LinearFit::regime_of(const LinearDemand& d) const {
    const auto serves = [&](const LinearRegime& r) {
        return has_ring(form) ? r.kernel == d.kernel : d.rows * d.row_state <= r.max_state_bytes;
    };
    return *std::find_if(regimes.begin(), regimes.end() - 1, serves);
}

double LinearFit::time_us(const LinearDemand& d, double read_gb_per_s) const {
    return std::visit([&](const auto& law) { return law.time_us(d, read_gb_per_s); }, regime_of(d).law);
}

const LinearFit& ProfileFit::linear_fit(const LinearShape& s, Form form) const {
    for (const LinearFit& kernel : linear) {
        if (kernel.matches(s, form)) return kernel;
    }
    std::string present;
    for (const LinearFit& k : linear)
        present += fmt::format("\n    {}", describe(k.family, k.form, k.state, k.records, k.v_dim, k.k_dim));
    throw ConfigError(profile_mistake(
        origin, 0, "",
        fmt::format("expected a fit of linear_{} rows with {}; the profile has {}", name(form),
                    describe(s.family, form, s.state, s.records, s.v_dim, s.k_dim),
                    present.empty() ? "no linear kernel" : "only" + present)));
}

TimedSource ProfileFit::linear_time(const LinearLaunch& launch) const {
    return linear_time(linear_fit(launch.shape, launch.form), launch);
}

TimedSource ProfileFit::linear_time(const LinearFit& kernel, const LinearLaunch& l) const {
    KVSIM_CHECK(l.work.sequences > 0, "a launch of {} without rows", kernel.kernel);
    // Decode folds at least the new token's record; a verify that finds no records has none to fold.
    KVSIM_CHECK(l.work.flushes > 0 ? l.work.flushed_tokens > 0 || l.form == Form::kVerifyBuffered
                                   : l.work.flushed_tokens == 0,
                "{} rows flush {} records", l.work.flushes, l.work.flushed_tokens);
    const LinearTraffic traffic = linear_traffic(l.shape, l.form, l.work);
    const LinearDemand demand = linear_demand(l, traffic);
    const bool own_law = !kernel.borrowed && (!kernel.ours() || !has_ring(l.form) ||
                                              kernel.regime_of(demand).kernel == demand.kernel);
    const bool in_range = own_law && kernel.k_heads.contains(l.shape.k_heads) &&
                          kernel.v_heads.contains(l.shape.v_heads) && kernel.batch.contains(demand.rows) &&
                          kernel.tokens.contains(demand.tokens_per_row) &&
                          kernel.records_per_row.contains(demand.records_per_row) &&
                          kernel.bytes.contains(static_cast<double>(traffic.total()));
    return {empty_node + time_from_us(kernel.time_us(demand, read.law.gb_per_s)),
            in_range ? Source::kFitted : Source::kExtrapolated};
}

}  // namespace kvsim
