// The table of fields: names that users rely on, one name for CSV and JSON, and numbers that read back
// exactly.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "sim/results/fields.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

std::string cell(const RunResult& result, const std::string& column) {
    const std::vector<std::string> header = csv_header();
    const auto found = std::find(header.begin(), header.end(), column);
    REQUIRE(found != header.end());
    return csv_row(result)[static_cast<std::size_t>(found - header.begin())];
}

RunResult some_result() {
    RunResult r;
    r.requests = {10, 6, 1, 2, 1};
    r.rejected_by.kv_tokens = 1;
    r.ttft_ms = {6, 0.1, 0.2, 0.3, 1.0 / 3.0};
    r.output_tokens_per_s = 1e6 / 7.0;
    r.steps = 4;
    r.simulated = Time(2'500'000'000'000);
    r.busy = Time(2'000'000'000'000);
    r.time_by_source[static_cast<std::size_t>(Source::kFitted)] = Time(500'000'000'000);
    r.time_by_source[static_cast<std::size_t>(Source::kRoofline)] = Time(1'500'000'000'000);
    r.linear_time = Time(500'000'000'000);
    r.linear_tokens = 1000;
    r.bytes[static_cast<std::size_t>(Owner::kStateRead)] = Bytes(5000);
    r.bytes[static_cast<std::size_t>(Owner::kStateWrite)] = Bytes(300);
    r.bytes[static_cast<std::size_t>(Owner::kBufferRead)] = Bytes(20);
    r.bytes[static_cast<std::size_t>(Owner::kBufferWrite)] = Bytes(1);
    r.bytes[static_cast<std::size_t>(Owner::kWeights)] = Bytes(100'000);
    return r;
}

TEST_CASE("the names of the stable interface exist") {
    const nlohmann::json json = to_json(RunResult{});
    for (const char* name : {"read", "completed", "rejected", "dropped", "unfinished"}) {
        CHECK(json.at("requests").contains(name));
    }
    for (const char* metric : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms"}) {
        for (const char* statistic : {"count", "mean", "p50", "p90", "p99"})
            CHECK(json.at(metric).contains(statistic));
    }
    for (const char* name : {"output_tokens_per_s", "steps", "simulated_s", "step_us", "linear_us_per_token",
                             "state_buffer_bytes_per_token", "flushes"}) {
        CHECK(json.contains(name));
    }
    for (const std::string_view owner : kOwnerNames) CHECK(json.at("bytes").contains(owner));
    for (const std::string_view source : kSourceNames) CHECK(json.contains("share_" + std::string(source)));
    CHECK(json.at("prompt_tokens").contains("p50"));
    CHECK(json.at("output_tokens").contains("p50"));
}

TEST_CASE("no name stands twice, in JSON or with dots flattened, and each has a help line") {
    const std::vector<std::string> header = csv_header();
    CHECK(header.size() == result_fields().size());
    CHECK(std::set<std::string>(header.begin(), header.end()).size() == header.size());
    for (const ResultField& field : result_fields()) CHECK_FALSE(field.help.empty());
    CHECK(csv_row(RunResult{}).size() == header.size());
}

TEST_CASE("CSV and JSON carry the same numbers") {
    const RunResult r = some_result();
    const nlohmann::json json = to_json(r);
    CHECK(json.at("requests").at("read") == 10);
    CHECK(cell(r, "requests_read") == "10");
    CHECK(json.at("ttft_ms").at("p99") == 1.0 / 3.0);
    CHECK(std::strtod(cell(r, "ttft_ms_p99").c_str(), nullptr) == 1.0 / 3.0);
    CHECK(cell(r, "ttft_ms_mean") == "0.1");  // shortest text that reads back, not 0.1000000000000000055
    CHECK(std::strtod(cell(r, "output_tokens_per_s").c_str(), nullptr) == 1e6 / 7.0);
    CHECK(cell(r, "simulated_s") == "2.5");
}

TEST_CASE("derived fields") {
    const nlohmann::json json = to_json(some_result());
    CHECK(json.at("step_us").get<double>() == Approx(500'000.0));          // 2 s / 4
    CHECK(json.at("linear_us_per_token").get<double>() == Approx(500.0));  // 0.5 s / 1000
    CHECK(json.at("busy_us_per_token").get<double>() == Approx(2000.0));   // 2 s / 1000
    CHECK(json.at("state_buffer_bytes_per_token").get<double>() == Approx(5.321));
    CHECK(json.at("bytes").at("total") == 105'321);
    CHECK(json.at("share_fitted").get<double>() == Approx(0.25));
    CHECK(json.at("share_roofline").get<double>() == Approx(0.75));
    CHECK(json.at("share_measured") == 0.0);
}

TEST_CASE("what a run does not have is empty, never NaN or zero") {
    const RunResult r;  // nothing ran
    const nlohmann::json json = to_json(r);
    CHECK(json.at("ttft_ms").at("mean").is_null());
    CHECK(json.at("step_us").is_null());
    CHECK(json.at("share_measured").is_null());
    CHECK(cell(r, "ttft_ms_mean").empty());
    CHECK(cell(r, "linear_us_per_token").empty());
    for (const std::string& text : csv_row(r)) CHECK(text.find("nan") == std::string::npos);
}

}  // namespace
}  // namespace kvsim
