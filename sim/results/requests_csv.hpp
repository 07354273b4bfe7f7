// One line per finished request: where its time went.
#pragma once

#include <iosfwd>

#include "sim/results/run_result.hpp"

namespace kvsim {

// Header and lines in order of arrival, of equal arrivals in order of finish. Times are exact: seconds to the
// picosecond for the arrival, milliseconds for the rest; tpot_ms is empty for an answer of one token.
// queue_ms + prefill_ms + decode_ms + interference_ms + preempted_ms + flush_ms = e2e_ms.
void write_requests_csv(std::ostream& out, const FinishedRequests& requests);

}  // namespace kvsim
