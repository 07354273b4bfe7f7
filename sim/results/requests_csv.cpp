#include "sim/results/requests_csv.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

namespace kvsim {
namespace {

void append_ms(std::string& line, Time time) {
    constexpr std::int64_t kPsPerMs = 1'000'000'000;
    fmt::format_to(std::back_inserter(line), FMT_COMPILE(",{}.{:09}"), time.value() / kPsPerMs,
                   time.value() % kPsPerMs);
}

void append_request(std::string& line, const FinishedRequest& r) {
    constexpr std::int64_t kPsPerSecond = 1'000'000'000'000;
    fmt::format_to(std::back_inserter(line), FMT_COMPILE("{}.{:012},{},{}"), r.arrived.value() / kPsPerSecond,
                   r.arrived.value() % kPsPerSecond, r.prompt_tokens, r.output_tokens);
    append_ms(line, r.queue);
    append_ms(line, r.ttft);
    if (r.output_tokens == 1) {
        line += ',';
    } else {
        fmt::format_to(std::back_inserter(line), FMT_COMPILE(",{}"),
                       to_ms(r.e2e - r.ttft) / static_cast<double>(r.output_tokens - 1));
    }
    append_ms(line, r.e2e);
    append_ms(line, r.ttft - r.queue);
    append_ms(line, r.e2e - r.ttft - r.interference - r.preempted - r.flush);
    append_ms(line, r.interference);
    append_ms(line, r.preempted);
    append_ms(line, r.flush);
    line += '\n';
}

}  // namespace

void write_requests_csv(std::ostream& out, const FinishedRequests& requests) {
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return requests[i].arrived; });
    out << "arrived_s,prompt_tokens,output_tokens,queue_ms,ttft_ms,tpot_ms,e2e_ms,prefill_ms,decode_ms,"
           "interference_ms,preempted_ms,flush_ms\n";
    std::string line;
    for (const std::size_t i : order) {
        line.clear();
        append_request(line, requests[i]);
        out << line;
    }
}

}  // namespace kvsim
