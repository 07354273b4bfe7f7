// The Azure conversation trace of 2023, exactly as published (CC-BY 4.0,
// github.com/Azure/AzurePublicDataset).
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "sim/workload/workload.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("the whole Azure conversation trace is read, last row included") {
    const std::string path = KVSIM_SOURCE_DIR "/../shared/traces/azure2023/AzureLLMInferenceTrace_conv.csv";
    if (!std::filesystem::exists(path)) {
        std::fprintf(stderr, "SKIPPED: no trace at %s\n", path.c_str());
        return;
    }
    const ArrivalList list = read_trace(path);
    CHECK(list.rows_read == 19'366);  // Splitwise (ISCA 2024), README of the data set
    REQUIRE(list.arrivals.size() == 19'366);
    CHECK(list.inversions == 0);
    CHECK(list.dropped_zero_output == 0);

    // First and last row, read off the file: 18:15:46.6805900,374,44 and 19:14:08.4025270,197,183.
    CHECK(list.arrivals.front().time == Time(0));
    CHECK(list.arrivals.front().prompt_tokens == 374);
    CHECK(list.arrivals.front().output_tokens == 44);
    CHECK(list.arrivals.back().time == Time(3'501'721'937'000'000));  // 58 min 21.721937 s later
    CHECK(list.arrivals.back().prompt_tokens == 197);
    CHECK(list.arrivals.back().output_tokens == 183);

    // Published medians: 1,020 input and 129 output tokens (Splitwise, section III).
    const auto median = [&](std::int64_t Arrival::*tokens) {
        std::vector<std::int64_t> values;
        for (const Arrival& a : list.arrivals) values.push_back(a.*tokens);
        std::sort(values.begin(), values.end());
        return static_cast<double>(values[values.size() / 2 - 1] + values[values.size() / 2]) / 2.0;
    };
    CHECK(median(&Arrival::prompt_tokens) == 1020.0);
    CHECK(median(&Arrival::output_tokens) == 129.0);
}

}  // namespace
}  // namespace kvsim
