// Text helpers: distances by hand, and numbers that other readers would take differently.
#include "sim/base/text.hpp"

#include <array>
#include <string_view>
#include <vector>

#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

TEST_CASE("edit distance counts inserted, deleted, replaced and swapped letters") {
    CHECK(edit_distance("", "") == 0);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("abc", "") == 3);
    CHECK(edit_distance("kitten", "sitting") == 3);  // the textbook pair
    CHECK(edit_distance("lenght", "length") == 1);   // one swap
    CHECK(edit_distance("ca", "abc") == 3);  // optimal string alignment; unrestricted distance would be 2
    CHECK(edit_distance("bufer_length", "buffer_length") == 1);
    CHECK(edit_distance("same", "same") == 0);
}

TEST_CASE("suggestions need to be close") {
    constexpr std::array<std::string_view, 4> kKeys{"batch", "context", "steps", "m"};
    CHECK(closest("bacth", kKeys) == "batch");
    CHECK(closest("contxt", kKeys) == "context");
    CHECK(closest("step", kKeys) == "steps");
    CHECK_FALSE(closest("horizon", kKeys));
    CHECK_FALSE(closest("k", kKeys));  // one edit away from `m`, but nothing in common
    CHECK_FALSE(closest("", kKeys));
    CHECK(suggestion("bacth", kKeys) == " (did you mean `batch`?)");
    CHECK(suggestion("horizon", kKeys).empty());
    constexpr std::array<std::string_view, 2> kEqual{"rates", "rated"};
    CHECK(closest("ratex", kEqual) == "rates");  // the first of equals
}

TEST_CASE("join") {
    constexpr std::array<std::string_view, 3> kParts{"a", "b", "c"};
    CHECK(join(kParts) == "a, b, c");
    CHECK(join(kParts, "/") == "a/b/c");
    CHECK(join({}).empty());
}

TEST_CASE("integers are decimal and whole") {
    CHECK(parse_integer("0") == 0);
    CHECK(parse_integer("-17") == -17);
    CHECK(parse_integer("9223372036854775807") == 9223372036854775807LL);
    CHECK(parse_integer("-9223372036854775808") == std::int64_t(-9223372036854775807LL - 1));
    for (const char* text : {"", "-", "+1", "01", "-01", "00", "1.0", "1e3", " 1", "1 ", "0x1", "1_000",
                             "1,000", "9223372036854775808", "one"}) {
        INFO(text);
        CHECK_FALSE(parse_integer(text));
    }
}

TEST_CASE("numbers are decimal and finite") {
    CHECK(parse_real("0") == 0.0);
    CHECK(parse_real("-0.5") == -0.5);
    CHECK(parse_real("1e-3") == 1e-3);
    CHECK(parse_real("2E+2") == 200.0);
    CHECK(parse_real("3.") == 3.0);
    for (const char* text : {"", "-", ".", ".5", "+1", "01.5", "1.5x", " 1", "1 ", "nan", "inf", "-inf",
                             "NaN", "0x1p3", "1e999", "1,5", "--1"}) {
        INFO(text);
        CHECK_FALSE(parse_real(text));
    }
}

TEST_CASE("leading zeros") {
    CHECK(has_leading_zero("010"));
    CHECK(has_leading_zero("-00"));
    CHECK_FALSE(has_leading_zero("0"));
    CHECK_FALSE(has_leading_zero("0.5"));
    CHECK_FALSE(has_leading_zero("10"));
}

}  // namespace
TEST_CASE("a line of CSV falls into its cells") {
    CHECK(split_cells("a,b,c") == std::vector<std::string_view>{"a", "b", "c"});
    CHECK(split_cells(",x,") == std::vector<std::string_view>{"", "x", ""});
    CHECK(split_cells("") == std::vector<std::string_view>{""});
}

}  // namespace kvsim
