// What the power limit of a GPU takes from long loads of matrix products, as `kvcalib sustained` measured it:
// products run at the rate of a rested GPU for some tens of milliseconds, and at a lower one from then on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

// A round of products that was run again and again, from a rested GPU or right after a phase of copies.
struct SustainedLoad {
    struct Slice {
        double start_ms = 0.0;  // since the first product
        double time_us = 0.0;
        double tflops = 0.0;
    };
    std::string name;
    std::vector<GemmWork> products;  // bf16, cold weights
    bool zeros = false;              // operands of zeros, which take little power
    bool after_memory = false;
    std::vector<Slice> slices;

    // The same product with several sets of weights; else the layers of a model.
    bool single() const;
    // TFLOP/s over the slices that start within [from, to) ms, 0 where there are none.
    double rate(double from_ms, double to_ms) const;
    double begin_rate() const;
    double sustained_rate() const;
};

// sustained_loads.csv and sustained.csv of the folder `sustained` of a profile; none where there is no such
// folder. Throws ConfigError with every mistake.
std::vector<SustainedLoad> load_sustained(const std::string& folder);

// Products of one step beyond `boost_ms` of them take 1 / sustained_share times as long. From loads of single
// products; those of models' layers judge it.
struct PowerFit {
    double boost_ms = 0.0;
    double sustained_share = 1.0;
    double spread = 0.0;  // relative standard deviation of that share over the loads
    std::int64_t loads = 0;

    Time boost() const;
    // By how much products that would take so long at the first rate are held up.
    Time held_up(Time products) const;
};
// Throws ConfigError when no load of single products is long enough, or they do not fall once.
PowerFit fit_power(const std::vector<SustainedLoad>& loads, const std::string& folder);

// power.yaml of a profile (schema kvsim/power/1). Throws ConfigError with every mistake.
std::string to_yaml(const PowerFit& fit);
std::optional<PowerFit> load_power(const std::string& folder);  // none where there is no file

}  // namespace kvsim
