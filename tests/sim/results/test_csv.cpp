// CSV lines against the rules of RFC 4180, section 2.
#include <vector>

#include "sim/results/csv.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("cells are quoted when they must be, and only then") {
    const std::vector<std::string> cells{"plain", "", "a b", "1,5", "say \"hi\"", "two\nlines", "cr\r"};
    CHECK(csv_line(cells) == "plain,,a b,\"1,5\",\"say \"\"hi\"\"\",\"two\nlines\",\"cr\r\"\n");
    CHECK(csv_line({}) == "\n");
}

}  // namespace
}  // namespace kvsim
