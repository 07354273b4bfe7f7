// Arrivals one at a time, so that a run of any length needs no list of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "sim/workload/workload.hpp"

namespace kvsim {

struct ArrivalCounts {      // so far
    std::int64_t read = 0;  // == yielded + dropped
    std::int64_t dropped = 0;
    std::int64_t inversions = 0;
    std::int64_t clamped = 0;
};

class ArrivalSource {
  public:
    virtual ~ArrivalSource() = default;
    // The next request, in order of time; none when there is no more, or (closed loop) when the next one
    // waits for a request to leave.
    virtual std::optional<Arrival> next() = 0;
    // A request has left (completed or rejected) at `now`: a closed loop lets another one in.
    virtual void left(Time now) = 0;
    // Hashes of the blocks of the prompt that next() yielded last, where the workload has them; valid until
    // the next call.
    virtual std::span<const std::uint64_t> blocks() const = 0;
    // Tokens of such a block; 0 where the workload has none.
    virtual std::int64_t block_tokens() const { return 0; }
    virtual ArrivalCounts counts() const = 0;
};

// For a workload with arrivals. `seed` names the streams `arrivals`, `prompt`, `output`, `spread`. A trace is
// read whole at once (see read_trace()); everything else takes the same memory for any number of requests.
// Throws ConfigError for a trace that cannot be read; next() throws it for arrivals beyond the range of time.
std::unique_ptr<ArrivalSource> make_arrivals(const WorkloadSpec& workload, std::uint64_t seed);

}  // namespace kvsim
