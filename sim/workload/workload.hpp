// What arrives: a steady batch, or requests with arrival times and lengths from distributions or from a
// trace.
#pragma once

#include <cstdint>
#include <optional>
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

// Requests drawn at random. Open loop: gaps between arrivals are gamma distributed with mean 1 / rate and
// shape `burstiness` (as --burstiness of the engines' benchmarks): 1 is a Poisson process, less comes in
// bursts. Closed loop: `concurrency` requests arrive at time zero, and each that leaves lets another one in.
struct SyntheticWorkload {
    Frequency rate;  // open loop
    std::int64_t requests = 0;
    LengthDistribution prompt;
    LengthDistribution output;
    double burstiness = 1.0;
    std::int64_t concurrency = 0;  // > 0: closed loop
    std::int64_t declared = 0;     // as TraceWorkload
};

// A recorded trace; the format is told by its header or first line.
//   Azure 2023 and 2024   CSV, TIMESTAMP (a date), ContextTokens, GeneratedTokens
//   BurstGPT              CSV, Timestamp (seconds), Request tokens, Response tokens
//   Mooncake              JSON lines, timestamp (milliseconds), input_length, output_length, hash_ids of
//   blocks
//                         of 512 tokens
//   Qwen-Bailian          JSON lines with a chat_id, timestamp (seconds), lengths and hash_ids of blocks of
//   16
// The first stamp is time zero. Rows out of order are sorted stably and counted. Rows with the same stamp
// arrive at the same instant.
struct TraceWorkload {
    std::string path;
    double speed = 1.0;                   // times are divided by it
    std::optional<std::int64_t> limit{};  // rows that are read, from the first
    // Every row is moved by a random part of the trace's resolution, the smallest difference between two of
    // its stamps: for traces whose stamps are rounded to seconds, where many rows share one.
    bool spread = false;
    // max_tokens of every request: what the scheduler is told, and where longer answers are cut off (counted
    // as clamped). 0: each declares the length that it has.
    std::int64_t declared = 0;
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

// rows_read = arrivals.size() + dropped_zero_output.
struct ArrivalList {
    std::vector<Arrival> arrivals;  // sorted by time, stable
    std::int64_t rows_read = 0;
    std::int64_t dropped_zero_output = 0;  // nothing to generate (failed requests of some traces)
    std::int64_t inversions = 0;           // rows whose stamp was before their predecessor's
    std::int64_t clamped = 0;              // lengths moved into their bounds
    // Hashes of the blocks of the prompts, one arrival after the other: those of arrival i start at
    // first_block[i]. Both are empty without hashes.
    std::vector<std::uint64_t> blocks;
    std::vector<std::size_t> first_block;
    std::int64_t block_tokens = 0;
};

// Reads a trace; ConfigError with file and line for a missing column, NaN, negative length, bad stamp, or no
// rows. Memory: the file, while it is read; 32 bytes per row; 8 bytes per block. `seed` names the stream
// `spread`.
ArrivalList read_trace(const TraceWorkload& trace, std::uint64_t seed = 1);
inline ArrivalList read_trace(const std::string& path) {
    return read_trace(TraceWorkload{path});
}

// Draws arrivals and lengths of an open loop from the named streams `arrivals`, `prompt`, `output` of `seed`:
// what make_arrivals() yields one by one.
ArrivalList generate(const SyntheticWorkload& workload, std::uint64_t seed);

}  // namespace kvsim
