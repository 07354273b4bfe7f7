// Traces as people publish and edit them: what is read, and what is refused where.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "sim/workload/workload.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

// A trace file that lives as long as the object.
class TraceFile {
  public:
    explicit TraceFile(const std::string& text)
        : path_((std::filesystem::temp_directory_path() / fmt::format("kvsim_trace_{}.csv", getpid()))
                    .string()) {
        std::ofstream(path_, std::ios::binary) << text;
    }
    ~TraceFile() { std::filesystem::remove(path_); }
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

ArrivalList read(const std::string& text) {
    const TraceFile file(text);
    return read_trace(file.path());
}

ArrivalList read_rows(const std::string& rows) {
    return read(std::string(kHeader) + rows);
}

std::vector<Mistake> mistakes_of(const std::string& text) {
    try {
        read(text);
    } catch (const ConfigError& error) {
        return error.mistakes();
    }
    FAIL("accepted: " << text);
    return {};
}

// The only mistake of a trace with these rows under the usual header.
Mistake mistake_of_rows(const std::string& rows) {
    const std::vector<Mistake> mistakes = mistakes_of(std::string(kHeader) + rows);
    REQUIRE(mistakes.size() == 1);
    return mistakes.front();
}

void check_is(const Arrival& arrival, std::int64_t time_ps, std::int64_t prompt, std::int64_t output) {
    CHECK(arrival.time == Time(time_ps));
    CHECK(arrival.prompt_tokens == prompt);
    CHECK(arrival.output_tokens == output);
}

TEST_CASE("line ends, byte-order mark and blank last lines do not matter") {
    const std::string rows[] = {"TIMESTAMP,ContextTokens,GeneratedTokens",
                                "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109"};
    for (const std::string mark : {"", "\xEF\xBB\xBF"}) {
        for (const std::string end : {"\n", "\r\n"}) {
            for (const std::string& last : {std::string(), end, end + end}) {
                const ArrivalList list = read(mark + rows[0] + end + rows[1] + end + rows[2] + last);
                CHECK(list.rows_read == 2);
                REQUIRE(list.arrivals.size() == 2);
                check_is(list.arrivals[0], 0, 374, 44);
                check_is(list.arrivals[1], 4'314'579'000'000, 396, 109);  // 50.995169 - 46.68059
            }
        }
    }
}

TEST_CASE("columns go by name, whatever stands between them") {
    const ArrivalList list = read(
        "id,GeneratedTokens,TIMESTAMP,note,ContextTokens\n"
        "7,2,2024-05-10 00:00:00+00:00,,3\n"
        "8,5,2024-05-10 00:00:00.009930+00:00,x,4\n");
    REQUIRE(list.arrivals.size() == 2);
    check_is(list.arrivals[0], 0, 3, 2);
    check_is(list.arrivals[1], 9'930'000'000, 4, 5);
}

TEST_CASE("rows out of order are sorted stably and counted") {
    const ArrivalList list = read_rows(
        "2024-01-01 00:00:05,1,1\n"
        "2024-01-01 00:00:03,2,1\n"  // inversion
        "2024-01-01 00:00:05,3,1\n"
        "2024-01-01 00:00:01,4,1\n"  // inversion
        "2024-01-01 00:00:03,5,1\n");
    CHECK(list.inversions == 2);
    REQUIRE(list.arrivals.size() == 5);
    const std::int64_t second = 1'000'000'000'000;
    check_is(list.arrivals[0], 0, 4, 1);
    check_is(list.arrivals[1], 2 * second, 2, 1);
    check_is(list.arrivals[2], 2 * second, 5, 1);
    check_is(list.arrivals[3], 4 * second, 1, 1);
    check_is(list.arrivals[4], 4 * second, 3, 1);
}

TEST_CASE("rows read are rows kept plus rows dropped") {
    const ArrivalList list =
        read_rows("2024-01-01 00:00:00,5,0\n2024-01-01 00:00:01,5,1\n2024-01-01 00:00:02,5,0\n");
    CHECK(list.rows_read == 3);
    CHECK(list.dropped_zero_output == 2);
    REQUIRE(list.arrivals.size() == 1);
    check_is(list.arrivals[0], 1'000'000'000'000, 5, 1);  // since the first row, dropped or not
}

TEST_CASE("a bad cell is named with line and column") {
    const std::string good = "2024-01-01 00:00:00,10,20\n";
    SECTION("NaN") {
        const Mistake m = mistake_of_rows(good + "2024-01-01 00:00:01,NaN,20\n");
        CHECK(m.place.line == 3);
        CHECK(m.place.column == 21);
        CHECK(m.message ==
              "ContextTokens: expected a whole number of tokens from 1 to 1000000000, got `NaN`");
    }
    SECTION("negative length") {
        const Mistake m = mistake_of_rows(good + "2024-01-01 00:00:01,10,-20\n");
        CHECK(m.place.line == 3);
        CHECK(m.place.column == 24);
        CHECK(m.message ==
              "GeneratedTokens: expected a whole number of tokens from 0 to 1000000000, got `-20`");
    }
    SECTION("empty prompt") {
        CHECK_THAT(mistake_of_rows("2024-01-01 00:00:01,0,20\n").message, ContainsSubstring("from 1"));
    }
    SECTION("fractions, exponents, blanks and numbers that are too long") {
        for (const std::string cell :
             {"1.5", "1e3", " 7", "", "99999999999999999999", "1000000001", "0x10"}) {
            INFO(cell);
            CHECK_THAT(mistake_of_rows("2024-01-01 00:00:01," + cell + ",20\n").message,
                       ContainsSubstring("got `" + cell + "`"));
        }
    }
    SECTION("bad stamp") {
        const Mistake m = mistake_of_rows(good + "2024-13-01 00:00:01,10,20\n");
        CHECK(m.place.line == 3);
        CHECK(m.place.column == 1);
        CHECK_THAT(m.message, ContainsSubstring("got `2024-13-01 00:00:01`"));
    }
    SECTION("missing and surplus cells, and a blank line in the middle") {
        for (const std::string row : {"2024-01-01 00:00:01,10", "2024-01-01 00:00:01,10,20,30", ""}) {
            const Mistake m = mistake_of_rows(good + row + "\n" + good);
            CHECK(m.place.line == 3);
            CHECK_THAT(m.message, ContainsSubstring("expected 3 cells"));
        }
    }
    SECTION("beyond the range of time") {
        CHECK_THAT(mistake_of_rows(good + "2025-01-01 00:00:00,10,20\n").message,
                   ContainsSubstring("106 days"));
    }
}

TEST_CASE("several mistakes come at once, and a flood is counted") {
    const std::vector<Mistake> three = mistakes_of(std::string(kHeader) + "x,NaN,-1\n");
    CHECK(three.size() == 3);
    std::string rows(kHeader);
    for (int i = 0; i < 15; ++i) rows += "2024-01-01 00:00:00,-1,-1\n";
    const std::vector<Mistake> flood = mistakes_of(rows);
    REQUIRE(flood.size() == 21);  // 30 mistakes: 20 listed and one line for the rest
    CHECK(flood.back().message == "10 more mistakes");
}

TEST_CASE("a header without a column, or with one twice, is refused") {
    const std::vector<Mistake> missing = mistakes_of("TIMESTAMP,ContextTokens\n2024-01-01 00:00:00,10\n");
    REQUIRE(missing.size() == 1);
    CHECK(missing[0].place.line == 1);
    CHECK(missing[0].message == "expected a column `GeneratedTokens`, got `TIMESTAMP,ContextTokens`");
    const std::vector<Mistake> twice =
        mistakes_of("TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n2024-01-01 00:00:00,1,1,1\n");
    REQUIRE(twice.size() == 1);
    CHECK(twice[0].place.column == 41);
    CHECK(twice[0].message == "column `ContextTokens` stands twice");
    CHECK(mistakes_of("").size() == 3);
}

TEST_CASE("a trace without rows is refused") {
    for (const std::string end : {"", "\n", "\r\n\r\n"}) {
        const std::vector<Mistake> mistakes = mistakes_of("TIMESTAMP,ContextTokens,GeneratedTokens" + end);
        REQUIRE(mistakes.size() == 1);
        CHECK_THAT(mistakes[0].message, ContainsSubstring("expected rows"));
    }
}

TEST_CASE("a file that cannot be read is named") {
    CHECK_THROWS_WITH(read_trace("no/such/trace.csv"),
                      "no/such/trace.csv: cannot read the trace: No such file or directory");
    CHECK_THROWS_WITH(read_trace("/tmp"), "/tmp: cannot read the trace: it is a folder");
}

}  // namespace
}  // namespace kvsim
