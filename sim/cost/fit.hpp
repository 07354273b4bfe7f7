// Few physical parameters per kernel, fitted to measured profiles, with the range in which they hold.
//
// Files: profiles/<gpu>/*.csv --fit_profile--> ProfileFit --to_yaml--> fit.yaml (schema kvsim/fit/1)
// --load_fit-->.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"
#include "sim/cost/law.hpp"
#include "sim/cost/profile.hpp"
#include "sim/cost/step_shape.hpp"

namespace kvsim {

struct TimedSource {
    Time time;
    Source source = Source::kFitted;
};

// Relative errors |predicted / measured - 1| of some rows. Percentiles by linear interpolation between
// closest ranks.
struct ErrorSummary {
    std::int64_t rows = 0;
    double median = 0.0;
    double p90 = 0.0;
    double worst = 0.0;
};
ErrorSummary summarise_errors(std::vector<double> errors);

// Closed; empty until something is included.
struct ValidRange {
    double min = std::numeric_limits<double>::infinity();
    double max = -std::numeric_limits<double>::infinity();

    bool contains(double x) const { return min <= x && x <= max; }
    void include(double x) {
        min = std::min(min, x);
        max = std::max(max, x);
    }
};

// Copy or read bandwidth of the device's memory.
struct StreamFit {
    StreamLaw law;
    ValidRange bytes;  // measured sizes, bytes read plus written
    ErrorSummary fitted;
};

// A law of the launches that one kernel serves, up to so many bytes of states in a launch (rows x state of a
// row).
struct LinearRegime {
    BufferedKernel kernel = BufferedKernel::kPipelined;                // forms with a ring
    double max_state_bytes = std::numeric_limits<double>::infinity();  // forms without
    LinearLaw law;
};

// One linear-attention kernel. Family, formats and dimensions of a head must match exactly; the rest has a
// range.
struct LinearFit {
    std::string kernel;  // name of its profile
    Form form = Form::kRecurrent;
    Family family = Family::kGdn;
    StateFormat state = StateFormat::kFp32;
    RecordFormat records = RecordFormat::kBf16;  // of forms with a ring
    int k_dim = 0;
    int v_dim = 0;
    // Forms with a ring: one of every kernel that serves them, the pipelined one last. Others: by ascending
    // max_state_bytes, the last without end; more than one where the launches change their ways with size.
    std::vector<LinearRegime> regimes;
    // Too few rows for a law of its own: that of the other record format, but for what depends on records.
    bool borrowed = false;
    ValidRange k_heads, v_heads, batch;
    ValidRange tokens;           // new ones per row
    ValidRange records_per_row;  // read, mean over the rows of a launch
    ValidRange bytes;            // all traffic of a launch
    ErrorSummary fitted, held_out;

    bool matches(const LinearShape& shape, Form f) const;
    // Whether it is a kernel of kernels/, which the launcher's rule chooses, or one of others.
    bool ours() const;
    // The law of a launch: the last one serves also what has none of its own.
    const LinearRegime& regime_of(const LinearDemand& demand) const;
    // Beyond the empty node.
    double time_us(const LinearDemand& demand, double read_gb_per_s) const;
};

// A value type: copies are independent, threads may share a const one.
struct ProfileFit {
    std::string origin;  // folder or file that it came from, for messages
    Time empty_node;     // what a node of a CUDA graph costs
    StreamFit copy, read;
    std::vector<LinearFit> linear;

    // Throws ConfigError naming the profile and the rows that it lacks when it has no such kernel.
    const LinearFit& linear_fit(const LinearShape& shape, Form form) const;
    // One launch, the empty node included. kExtrapolated outside the measured range, by a borrowed law, or by
    // that of another of our kernels than the launcher takes; else kFitted.
    TimedSource linear_time(const LinearLaunch& launch) const;
    TimedSource linear_time(const LinearFit& kernel, const LinearLaunch& launch) const;
};

// Fits every kernel of the profile, without its held-out rows: one law for all head counts, ring lengths and
// fills of a form, state format and record format. Throws ConfigError when rows are missing (empty,
// stream_copy, stream_read), or are fewer than a law has parameters, or a form has no law.
ProfileFit fit_profile(const Profile& profile);

// fit.yaml: parameters in the shortest form that reads back exactly. Same fit, same text.
std::string to_yaml(const ProfileFit& fit);
// Reads `fit.yaml` of a folder, or a file. Throws ConfigError with every mistake.
ProfileFit load_fit(const std::string& folder_or_file);

}  // namespace kvsim
