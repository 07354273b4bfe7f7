// Traces as people publish and edit them: what is read, and what is refused where.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
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

TEST_CASE("files that are no traces are told in words for a terminal") {
    CHECK_THAT(mistakes_of("").at(0).message, ContainsSubstring("an empty file"));
    CHECK_THAT(mistakes_of("\n\n").at(0).message, ContainsSubstring("an empty file"));
    const std::string message = mistakes_of("\x1b[31m\x80\x01" + std::string(1000, 'x') + "\n").at(0).message;
    CHECK_THAT(message, ContainsSubstring("got `?[31m??xxx"));
    CHECK(message.size() < 300);
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
    CHECK(mistakes_of("").size() == 1);
}

TEST_CASE("a trace without rows is refused") {
    for (const std::string end : {"", "\n", "\r\n\r\n"}) {
        const std::vector<Mistake> mistakes = mistakes_of("TIMESTAMP,ContextTokens,GeneratedTokens" + end);
        REQUIRE(mistakes.size() == 1);
        CHECK_THAT(mistakes[0].message, ContainsSubstring("expected rows"));
    }
}

TEST_CASE("a file that cannot be read is named, and a pipe is not waited for") {
    CHECK_THROWS_WITH(read_trace("no/such/trace.csv"), ContainsSubstring("no/such/trace.csv: no such file"));
    CHECK_THROWS_WITH(read_trace("/tmp"), ContainsSubstring("/tmp: expected a file, got a folder"));
    CHECK_THROWS_WITH(read_trace("/dev/zero"), ContainsSubstring("got a device or pipe"));
}

TEST_CASE("BurstGPT, old and new columns; failed requests are dropped") {
    for (const std::string& extra : {std::string(), std::string("Session ID,Elapsed time,")}) {
        const std::string cells = extra.empty() ? "" : "7,1.5,";
        const ArrivalList list =
            read("Timestamp," + extra + "Model,Request tokens,Response tokens,Total tokens,Log Type\n" +
                 "605," + cells + "ChatGPT,472,18,490,Conversation log\n" +  //
                 "605," + cells + "GPT-4,100,0,100,API log\n" +              //
                 "612.25," + cells + "ChatGPT,1087,230,1317,Conversation log\n");
        CHECK(list.rows_read == 3);
        CHECK(list.dropped_zero_output == 1);
        REQUIRE(list.arrivals.size() == 2);
        check_is(list.arrivals[0], 0, 472, 18);
        check_is(list.arrivals[1], 7'250'000'000'000, 1087, 230);
    }
    const std::vector<Mistake> bad =
        mistakes_of("Timestamp,Model,Request tokens,Response tokens\n-5,a,1,1\nnan,a,1,1\n1e3,a,1,1\n");
    REQUIRE(bad.size() == 3);
    CHECK(bad[0].place.line == 2);
    CHECK(bad[0].message == "Timestamp: expected seconds such as `5` or `61.25`, got `-5`");
}

TEST_CASE("Mooncake: milliseconds, and hashes of blocks that follow their requests when rows are sorted") {
    const ArrivalList list = read(
        "\xEF\xBB\xBF{\"timestamp\": 3000, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [0, "
        "9]}\r\n"
        "{\"output_length\": 7, \"input_length\": 500, \"timestamp\": 1500, \"hash_ids\": [0]}\r\n"
        "{\"timestamp\": 2000, \"input_length\": 40, \"output_length\": 0, \"hash_ids\": [3]}\r\n"
        "{\"timestamp\": 3000, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}");
    CHECK(list.rows_read == 4);
    CHECK(list.inversions == 1);
    CHECK(list.dropped_zero_output == 1);
    REQUIRE(list.arrivals.size() == 3);
    check_is(list.arrivals[0], 0, 500, 7);
    check_is(list.arrivals[1], 1'500'000'000'000, 1000, 5);
    check_is(list.arrivals[2], 1'500'000'000'000, 1, 1);
    CHECK(list.block_tokens == 512);
    CHECK(list.first_block == std::vector<std::size_t>{0, 1, 3});
    CHECK(list.blocks == std::vector<std::uint64_t>{0, 0, 9});
}

TEST_CASE("Qwen-Bailian: seconds, blocks of 16, told by chat_id") {
    const ArrivalList list = read(
        R"({"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 20, "output_length": 3, "type": "text", "turn": 1, "hash_ids": [18446744073709551615, 2]})"
        "\n"
        R"({"chat_id": 2, "parent_chat_id": 1, "timestamp": 62, "input_length": 40, "output_length": 4, "extra": {"timestamp": [1, {"hash_ids": [7]}]}, "hash_ids": [5]})");
    REQUIRE(list.arrivals.size() == 2);
    check_is(list.arrivals[1], 886'000'000'000, 40, 4);  // 62 - 61.114
    CHECK(list.block_tokens == 16);
    CHECK(list.blocks == std::vector<std::uint64_t>{~std::uint64_t{0}, 2, 5});
}

TEST_CASE("a bad line of JSON is named") {
    const auto mistake = [](const std::string& line) {
        const std::vector<Mistake> all =
            mistakes_of(R"({"timestamp": 0, "input_length": 1, "output_length": 1})"
                        "\n" +
                        line + "\n");
        REQUIRE(all.size() == 1);
        CHECK(all[0].place.line == 2);
        return all[0].message;
    };
    CHECK(mistake(R"({"input_length": 1, "output_length": 1})") == "expected a key `timestamp`");
    CHECK(mistake(R"({"timestamp": 0, "input_length": 0, "output_length": 1})") ==
          "input_length: expected a whole number of tokens from 1 to 1000000000, got `0`");
    CHECK(mistake(R"({"timestamp": 0, "input_length": 1.5, "output_length": 1})") ==
          "input_length: expected a whole number of tokens from 1 to 1000000000, got `1.5`");
    CHECK(mistake(R"({"timestamp": 0, "input_length": 1, "output_length": "2"})") ==
          "output_length: expected a whole number of tokens from 0 to 1000000000, got `\"2\"`");
    CHECK(mistake(R"({"timestamp": -3, "input_length": 1, "output_length": 1})") ==
          "timestamp: expected milliseconds without sign or exponent, got `-3`");
    CHECK(mistake(R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1, -2]})") ==
          "hash_ids: expected a list of whole numbers, got `-2`");
    CHECK(mistake(R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": 3})") ==
          "hash_ids: expected a list of whole numbers, got `3`");
    CHECK(mistake(R"({"timestamp": 0, "timestamp": 1, "input_length": 1, "output_length": 1})") ==
          "key `timestamp` stands twice");
    CHECK(mistake("[1]") == "expected an object");
    CHECK(mistake("7") == "expected an object, got 7");
    for (const std::string line : {" ", R"({"timestamp": 0,)", R"({"timestamp": NaN})", R"({} {})"}) {
        INFO(line);
        CHECK_THAT(mistake(line), ContainsSubstring("expected a JSON object"));
    }
}

TEST_CASE("limit, speed and declared length") {
    const TraceFile file(std::string(kHeader) +
                         "2024-01-01 00:00:00,5,10\n2024-01-01 00:00:03,6,30\n2024-01-01 00:00:07,x,9\n");
    TraceWorkload workload{file.path()};
    workload.limit = 2;  // the bad row is not read
    workload.speed = 2.0;
    const ArrivalList list = read_trace(workload);
    CHECK(list.rows_read == 2);
    REQUIRE(list.arrivals.size() == 2);
    check_is(list.arrivals[1], 1'500'000'000'000, 6, 30);
    CHECK(list.arrivals[1].declared_tokens == 0);

    workload.declared = 20;
    const ArrivalList declared = read_trace(workload);
    CHECK(declared.clamped == 1);
    check_is(declared.arrivals[0], 0, 5, 10);
    check_is(declared.arrivals[1], 1'500'000'000'000, 6, 20);  // cut off, as max_tokens does
    CHECK(declared.arrivals[0].declared_tokens == 20);

    workload.speed = 1e-7;
    CHECK_THROWS_WITH(read_trace(workload), ContainsSubstring("workload.speed"));
}

TEST_CASE("rows that share a stamp are spread within the resolution of the stamps") {
    std::string rows(kHeader);
    for (int i = 0; i < 200; ++i) rows += fmt::format("2024-01-01 00:00:{:02},{},1\n", i / 50 * 5, i + 1);
    const TraceFile file(rows);
    TraceWorkload workload{file.path()};
    const ArrivalList tied = read_trace(workload);
    CHECK(tied.arrivals[49].time == Time());  // at the same instant
    workload.spread = true;
    const ArrivalList spread = read_trace(workload, 3);
    REQUIRE(spread.arrivals.size() == 200);
    CHECK(spread.arrivals[0].time == Time());
    CHECK(spread.inversions == 0);
    double sum = 0.0;
    for (std::size_t i = 0; i < 200; ++i) {
        const Arrival& a = spread.arrivals[i];
        if (i > 0) CHECK(a.time >= spread.arrivals[i - 1].time);
        const auto second = static_cast<double>((a.prompt_tokens - 1) / 50 * 5);
        // Within 5 s of the stamp, but for the shift that puts the first at zero.
        CHECK(to_seconds(a.time) > second - 5.0);
        CHECK(to_seconds(a.time) < second + 5.0);
        sum += to_seconds(a.time) - second;
    }
    // Uniform over 5 s, of standard deviation 1.44 s; the least of the first 50, that is the shift, is 0.1 s.
    CHECK(sum / 200 == Approx(2.4).margin(4 * 1.44 / std::sqrt(200.0) + 0.5));
    CHECK(read_trace(workload, 3).arrivals[77].time == spread.arrivals[77].time);
    CHECK(read_trace(workload, 4).arrivals[77].time != spread.arrivals[77].time);
}

}  // namespace
}  // namespace kvsim
