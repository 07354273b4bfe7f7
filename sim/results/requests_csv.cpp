#include "sim/results/requests_csv.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

namespace kvsim {
namespace {

void append_ms(std::string& line, Time time) {
    constexpr std::int64_t kPsPerMs = 1'000'000'000;
    fmt::format_to(std::back_inserter(line), FMT_COMPILE(",{}.{:09}"), time.value() / kPsPerMs,
                   time.value() % kPsPerMs);
}

void append_request(std::string& text, const FinishedRequest& r) {
    constexpr std::int64_t kPsPerSecond = 1'000'000'000'000;
    fmt::format_to(std::back_inserter(text), FMT_COMPILE("{}.{:012},{},{}"), r.arrived.value() / kPsPerSecond,
                   r.arrived.value() % kPsPerSecond, r.prompt_tokens, r.output_tokens);
    append_ms(text, r.queue);
    append_ms(text, r.ttft);
    if (r.output_tokens == 1) {
        text += ',';
    } else {
        fmt::format_to(std::back_inserter(text), FMT_COMPILE(",{}"),
                       to_ms(r.e2e - r.ttft) / static_cast<double>(r.output_tokens - 1));
    }
    append_ms(text, r.e2e);
    append_ms(text, r.ttft - r.queue);
    append_ms(text, r.e2e - r.ttft - r.interference - r.preempted - r.flush);
    append_ms(text, r.interference);
    append_ms(text, r.preempted);
    append_ms(text, r.flush);
    text += '\n';
}

}  // namespace

std::string requests_csv(const FinishedRequests& requests) {
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return requests[i].arrived; });
    std::string text =
        "arrived_s,prompt_tokens,output_tokens,queue_ms,ttft_ms,tpot_ms,e2e_ms,prefill_ms,decode_ms,"
        "interference_ms,preempted_ms,flush_ms\n";
    for (const std::size_t i : order) append_request(text, requests[i]);
    return text;
}

}  // namespace kvsim
