// A line per request, in order of arrival, exact to the picosecond.
#include "sim/results/requests_csv.hpp"

#include <sstream>

#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("requests as CSV") {
    const Time ms(1'000'000'000);
    FinishedRequest late{Time(1'500'000'000'001), 2 * ms, 10 * ms, 50 * ms, 5 * ms, 4 * ms, 1 * ms, 100, 11};
    FinishedRequest early{Time(), Time(1), 3 * ms, 3 * ms, Time(), Time(), Time(), 7, 1};
    const FinishedRequests requests{late, early};
    std::ostringstream out;
    write_requests_csv(out, requests);
    CHECK(
        out.str() ==
        "arrived_s,prompt_tokens,output_tokens,queue_ms,ttft_ms,tpot_ms,e2e_ms,prefill_ms,decode_ms,"
        "interference_ms,preempted_ms,flush_ms\n"
        "0.000000000000,7,1,0.000000001,3.000000000,,3.000000000,2.999999999,0.000000000,0.000000000,"
        "0.000000000,0.000000000\n"
        "1.500000000001,100,11,2.000000000,10.000000000,4,50.000000000,8.000000000,30.000000000,5.000000000,"
        "4.000000000,1.000000000\n");
}

}  // namespace
}  // namespace kvsim
