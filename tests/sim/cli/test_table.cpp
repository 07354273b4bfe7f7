#include "sim/cli/table.hpp"

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"

using kvsim::TextTable;

TEST_CASE("columns are as wide as their widest cell and lines have no trailing spaces") {
    TextTable table({{"name", TextTable::Align::kLeft}, {"us"}, {"note", TextTable::Align::kLeft}});
    table.add_row({"a", "12.5", ""});
    table.add_row({"longer", "3.0", "x"});
    CHECK(table.str() ==
          "name      us  note\n"
          "------  ----  ----\n"
          "a       12.5\n"
          "longer   3.0  x\n");
    CHECK_THROWS_AS(table.add_row({"too few"}), kvsim::InvariantError);
}
