// How well a fit predicts its profile: errors on the rows that it saw and, apart, on those that it never saw.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/fit.hpp"
#include "sim/cost/profile.hpp"

namespace kvsim {

struct RowError {
    Place place;      // of the measured row
    std::string row;  // what was launched, in words
    bool held_out = false;
    Time measured;
    Time predicted;
    double error = 0.0;  // predicted / measured - 1
};

// Errors of some of a kernel's rows.
struct ValidationPart {
    std::string name;  // "length 16", "heads 16/48", "tokens 5"
    ErrorSummary fitted;
    ErrorSummary held_out;
};

struct ValidationRow {
    std::string kernel;
    std::string layer;  // family, form, formats and head of a linear kernel; empty for the memory probes
    ErrorSummary fitted;
    ErrorSummary held_out;
    // By length of the ring, by heads, by new tokens, ascending; an axis with one value has none.
    std::vector<ValidationPart> parts;
    std::vector<RowError>
        worst;  // largest |error| first, at most kWorstRows, held-out rows before fitted ones
};
inline constexpr std::size_t kWorstRows = 5;

// One row per kernel and layer, in the order of the profile. Throws ConfigError when the fit lacks a kernel
// of the profile.
std::vector<ValidationRow> validate(const Profile& profile, const ProfileFit& fit);

// CSV, one line per row of the profile that a fit uses: its place and shape, its bytes and FLOPs (those of
// kernels/traffic_linear.hpp), measured and predicted time, and whether it is held out. Empty cells as in the
// profile.
std::string validation_csv(const Profile& profile, const ProfileFit& fit);

}  // namespace kvsim
