// CUPTI's host interface needs no GPU: a metric that was renamed, or that needs a second pass, shows up here.
#include <algorithm>

#include "kernels/calibrate/metric_config.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim::calibrate;

TEST_CASE("the chips that kvsim measures on are known to CUPTI") {
    const std::vector<std::string> chips = supported_chips();
    for (const char* chip : {"GA100", "AD102", "GH100"}) {
        CAPTURE(chip);
        CHECK(std::count(chips.begin(), chips.end(), chip) == 1);
    }
}

TEST_CASE("all counters are read in one pass") {
    // A second pass would see other write-backs than the first.
    for (const char* chip : {"GA100", "AD102", "GH100"}) {
        CAPTURE(chip);
        const MetricConfig config(chip);
        CHECK(config.passes() == 1);
        CHECK_FALSE(config.image().empty());
    }
}

TEST_CASE("an unknown metric or chip is an error that names it") {
    const std::array<const char*, 2> metrics{"dram__bytes_read.sum", "dram__bytes_red.sum"};
    CHECK_THROWS_WITH(MetricConfig("GH100", metrics), "GH100 has no metric dram__bytes_red.sum");
    CHECK_THROWS_AS(MetricConfig("GX999"), CuptiError);
}
