// What arrives: a steady batch, or requests with arrival times and lengths from distributions or from a
// trace.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace kvsim {

// Lengths in tokens. Every draw is rounded to an integer and clamped to [min, max]; clamps are counted in the
// result.
struct LengthDistribution {
    enum class Kind : std::uint8_t { kConstant, kLogNormal, kEmpirical };
    Kind kind = Kind::kConstant;
    std::int64_t value = 0;  // constant
    double median = 0.0;     // log-normal: exp(mu)
    double sigma = 0.0;      // log-normal: standard deviation of the logarithm
    std::vector<double>
        quantile_tokens;  // empirical: tokens at evenly spaced quantiles 0 .. 1, linear in between
    std::int64_t min = 1;
    std::int64_t max = 1'000'000;
};

// Poisson arrivals, open loop.
struct SyntheticWorkload {
    Frequency rate;
    std::int64_t requests = 0;
    LengthDistribution prompt;
    LengthDistribution output;
};

// A recorded trace. Format from the header: Azure 2023/2024 (TIMESTAMP,ContextTokens,GeneratedTokens).
struct TraceWorkload {
    std::string path;
};

// Every sequence decodes at the same batch and context for `steps` steps, flush phases spread evenly over the
// cycle: what sweeps of kernels and buffers compare. No arrivals, no prefill.
struct SteadyWorkload {
    std::int64_t batch = 0;
    std::int64_t context = 0;  // tokens cached per sequence, held fixed
    std::int64_t steps = 0;
};

using WorkloadSpec = std::variant<SteadyWorkload, SyntheticWorkload, TraceWorkload>;

struct Arrival {
    Time time;  // since the first arrival of a trace, since zero otherwise
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    std::int64_t declared_tokens = 0;  // most that the scheduler is told; 0: output_tokens
};

// rows_read = arrivals.size() + sum of dropped, by reason.
struct ArrivalList {
    std::vector<Arrival> arrivals;  // sorted by time, stable
    std::int64_t rows_read = 0;
    std::int64_t dropped_zero_output = 0;  // nothing to generate (failed requests of some traces)
    std::int64_t inversions = 0;           // rows whose stamp was before their predecessor's
    std::int64_t clamped = 0;              // synthetic lengths moved into [min, max]
};

// Reads a trace; ConfigError with file and line for a missing column, NaN, negative length, bad stamp, or no
// rows.
ArrivalList read_trace(const std::string& path);

// Draws arrivals and lengths from the named streams `arrivals`, `prompt`, `output` of `seed`.
ArrivalList generate(const SyntheticWorkload& workload, std::uint64_t seed);

}  // namespace kvsim
