#include "sim/cost/power.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "sim/base/error.hpp"
#include "sim/cost/fit_text.hpp"
#include "sim/cost/tables/csv_table.hpp"

namespace kvsim {

namespace {

// Clocks fell between 31 and 98 ms in every load on an H200, and were steady from 150 ms to the dip at
// 0.8 s that follows longer loads.
constexpr double kBeginMs = 30.0, kSettledMs = 150.0, kSteadyMs = 600.0;

constexpr RealRange kBoostRange{.min = 0.0, .max = 1e6};
constexpr RealRange kShareRange{.min = 0.1, .max = 1.0};
constexpr RealRange kSpreadRange{.min = 0.0, .max = 1.0};

bool within(double value, const RealRange& range) {
    return value >= range.min && value <= range.max;
}

// Links count, even those that lead nowhere: what somebody has put there is meant.
bool stands(const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// The time after which one step from the first rate to the second would have done the work of the load.
double boost_ms(const SustainedLoad& load) {
    double us = 0.0, work = 0.0;
    for (const SustainedLoad::Slice& s : load.slices) {
        if (s.start_ms >= kSettledMs) continue;
        us += s.time_us;
        work += s.time_us * s.tflops;
    }
    const double begin = load.begin_rate(), end = load.sustained_rate();
    return begin > end ? 1e-3 * (work - end * us) / (begin - end) : 1e-3 * us;
}

class Loader {
  public:
    explicit Loader(const std::string& folder) : folder_(folder) {}

    std::vector<SustainedLoad> load() {
        read_loads();
        read_slices();
        if (!mistakes_.empty()) throw ConfigError(std::move(mistakes_));
        return std::move(loads_);
    }

  private:
    std::string file(const char* name) const {
        return (std::filesystem::path(folder_) / "sustained" / name).string();
    }

    void note(const Place& place, std::string_view column, std::string message) {
        Mistake& mistake = mistakes_.emplace_back();
        mistake.place = place;
        mistake.path = column;
        mistake.message = std::move(message);
    }

    bool one_of(const CsvTable& table, std::size_t row, std::string_view column, std::string_view no,
                std::string_view yes) {
        const std::string_view text = table.text(row, column);
        if (text != no && text != yes)
            note(table.place(row), column, fmt::format("expected {} or {}, got `{}`", no, yes, text));
        return text == yes;
    }

    // n x k, as in 12288x2560, between blanks.
    void read_products(const CsvTable& table, std::size_t row, SustainedLoad& load) {
        const std::int64_t m = table.positive_integer(row, "m");
        const std::string_view text = table.text(row, "products");
        const char* at = text.data();
        const char* const end = at + text.size();
        while (at != end || load.products.empty()) {
            GemmWork product{.m = m};
            const auto n = std::from_chars(at, end, product.n);
            const bool cross = n.ec == std::errc() && n.ptr != end && *n.ptr == 'x';
            const auto k = std::from_chars(cross ? n.ptr + 1 : end, end, product.k);
            if (!cross || k.ec != std::errc() || (k.ptr != end && *k.ptr != ' ') || product.n < 1 ||
                product.k < 1) {
                note(table.place(row), "products", fmt::format("expected n x k ..., got `{}`", text));
                return;
            }
            load.products.push_back(product);
            at = k.ptr == end ? end : k.ptr + 1;
        }
    }

    void read_loads() {
        const CsvTable table(file("sustained_loads.csv"), {"load", "name", "m", "data", "before", "products"},
                             mistakes_);
        for (std::size_t row = 0; row < table.rows(); ++row) {
            if (table.natural(row, "load") != static_cast<std::int64_t>(row))
                note(table.place(row), "load", fmt::format("expected {}, the number of the row", row));
            SustainedLoad& load = loads_.emplace_back();
            load.name = table.text(row, "name");
            load.zeros = one_of(table, row, "data", "normal", "zeros");
            load.after_memory = one_of(table, row, "before", "idle", "memory");
            read_products(table, row, load);
        }
    }

    void read_slices() {
        const CsvTable table(file("sustained.csv"),
                             {"load", "start_ms", "time_us", "launches", "tflops", "tb_per_s", "sm_mhz"},
                             mistakes_);
        if (loads_.empty()) return;  // sustained_loads.csv is the mistake, not every slice
        for (std::size_t row = 0; row < table.rows(); ++row) {
            const auto load = static_cast<std::size_t>(table.natural(row, "load"));
            if (load >= loads_.size()) {
                note(table.place(row), "load", "expected a load of sustained_loads.csv");
                continue;
            }
            if (table.text(row, "tflops").empty()) continue;  // copies, before the products
            const std::string_view start = table.text(row, "start_ms");
            SustainedLoad::Slice slice;
            const auto end = start.data() + start.size();
            const auto read = std::from_chars(start.data(), end, slice.start_ms);
            const auto& before = loads_[load].slices;
            if (read.ec != std::errc() || read.ptr != end || !(slice.start_ms >= 0.0) ||
                (!before.empty() && slice.start_ms <= before.back().start_ms))
                note(table.place(row), "start_ms", fmt::format("expected times that rise, got `{}`", start));
            slice.time_us = table.positive(row, "time_us");
            slice.tflops = table.positive(row, "tflops");
            loads_[load].slices.push_back(slice);
        }
    }

    const std::string& folder_;
    std::vector<SustainedLoad> loads_;
    std::vector<Mistake> mistakes_;
};

}  // namespace

bool SustainedLoad::single() const {
    return std::ranges::all_of(
        products, [&](const GemmWork& w) { return w.n == products.front().n && w.k == products.front().k; });
}

double SustainedLoad::rate(double from_ms, double to_ms) const {
    double us = 0.0, work = 0.0;
    for (const Slice& s : slices) {
        if (s.start_ms < from_ms || s.start_ms >= to_ms) continue;
        us += s.time_us;
        work += s.time_us * s.tflops;
    }
    return us > 0.0 ? work / us : 0.0;
}
double SustainedLoad::begin_rate() const {
    return rate(0.0, kBeginMs);
}
double SustainedLoad::sustained_rate() const {
    return rate(kSettledMs, kSteadyMs);
}

std::vector<SustainedLoad> load_sustained(const std::string& folder) {
    if (!stands(std::filesystem::path(folder) / "sustained")) return {};
    return Loader(folder).load();
}

Time PowerFit::boost() const {
    return time_from_us(1e3 * boost_ms);
}

Time PowerFit::held_up(Time products) const {
    if (products <= boost()) return {};
    return time_from_us(to_us(products - boost()) * (1.0 / sustained_share - 1.0));
}

PowerFit fit_power(const std::vector<SustainedLoad>& loads, const std::string& folder) {
    std::vector<double> boosts, shares;
    for (const SustainedLoad& load : loads) {
        if (!load.single() || load.zeros || load.begin_rate() <= 0.0 || load.sustained_rate() <= 0.0)
            continue;
        boosts.push_back(boost_ms(load));
        // A GPU without the effect is never faster for being busy.
        shares.push_back(std::min(1.0, load.sustained_rate() / load.begin_rate()));
    }
    const std::string place = (std::filesystem::path(folder) / "sustained").string();
    if (shares.empty()) {
        throw ConfigError(profile_mistake(
            place, 0, "",
            fmt::format(
                "expected a load of one product, random operands, from its first {} ms to {} ms at least",
                kBeginMs, kSettledMs)));
    }
    PowerFit fit;
    fit.loads = static_cast<std::int64_t>(shares.size());
    fit.boost_ms = six_digits(median(boosts));
    fit.sustained_share = six_digits(median(shares));
    double squares = 0.0;
    for (const double s : shares) squares += std::pow(s / fit.sustained_share - 1.0, 2);
    fit.spread = six_digits(std::sqrt(squares / static_cast<double>(shares.size())));
    if (!within(fit.boost_ms, kBoostRange) || !within(fit.sustained_share, kShareRange) ||
        !within(fit.spread, kSpreadRange)) {
        throw ConfigError(profile_mistake(
            place, 0, "",
            fmt::format(
                "expected rates that fall once, to {} of the first at least; got {} of it (spread {}) "
                "after {} ms",
                kShareRange.min, fit.sustained_share, fit.spread, fit.boost_ms)));
    }
    return fit;
}

std::string to_yaml(const PowerFit& fit) {
    return fmt::format(
        "# Written by `kvsim fit` from the loads of sustained: medians over loads of one product each. "
        "Products of one "
        "step beyond boost_ms\n# take 1 / sustained_share times as long (sim/cost/power.hpp).\n"
        "schema: kvsim/power/1\nboost_ms: {}\nsustained_share: {}\nspread: {}\nloads: {}\n",
        fit.boost_ms, fit.sustained_share, fit.spread, fit.loads);
}

std::optional<PowerFit> load_power(const std::string& folder) {
    const std::filesystem::path file = std::filesystem::path(folder) / "power.yaml";
    if (!stands(file)) return std::nullopt;
    YamlReader reader;
    const YamlCursor root = reader.open(file.string(), "power");
    PowerFit fit;
    fit.boost_ms = root.at("boost_ms").real(kBoostRange);
    fit.sustained_share = root.at("sustained_share").real(kShareRange, 1.0);
    fit.spread = root.at("spread").real(kSpreadRange);
    fit.loads = root.at("loads").integer(kPositiveInt);
    reader.finish();
    return fit;
}

}  // namespace kvsim
