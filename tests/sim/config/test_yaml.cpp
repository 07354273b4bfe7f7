// The strict reader: every class of mistake with its exact place, and values that are right.
#include "sim/config/yaml.hpp"

#include <functional>

#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// What reading `text` (as the file f.yaml) with `schema` reports.
std::string mistakes_of(const std::string& text, const std::function<void(const YamlCursor&)>& schema) {
    return config_error([&] {
        YamlReader reader;
        schema(reader.root(parse_yaml_text(text, "f.yaml")));
        reader.finish();
    });
}

const auto kNothing = [](const YamlCursor&) {};

TEST_CASE("structural mistakes are found before any schema is asked") {
    CHECK(mistakes_of("a: 1\nb: 2\na: 3\n", kNothing) ==
          "f.yaml:3:1: duplicate key `a`, first given in line 1");
    CHECK(mistakes_of("a:\n  x: 1\n  x: 2\nb:\n  - {y: 1, y: 2}\n", kNothing) ==
          "f.yaml:3:3: duplicate key `x`, first given in line 2\n"
          "f.yaml:5:12: duplicate key `y`, first given in line 5");
    CHECK(mistakes_of("a: &x 1\nb: *x\n", kNothing) ==
          "f.yaml:1:4: anchors (`&name`) are not supported\n"
          "f.yaml:2:4: aliases (`*name`) are not supported; repeat the value");
    CHECK(mistakes_of("a: {x: 1}\nb:\n  <<: {y: 1}\n", kNothing) ==
          "f.yaml:3:3: merge keys (`<<`) are not supported; write the keys out");
    CHECK(mistakes_of("a: !!int 3\n", kNothing) ==
          "f.yaml:1:4: tags are not supported, got `tag:yaml.org,2002:int`");
    CHECK(mistakes_of("a: 1\n---\nb: 2\n", kNothing) ==
          "f.yaml:3:1: expected one YAML document, got a second one");
    CHECK(mistakes_of("", kNothing) == "f.yaml: the file is empty");
    CHECK(mistakes_of("# only a comment\n", kNothing) == "f.yaml: the file is empty");
    CHECK(mistakes_of("[1, 2]: x\n", kNothing) == "f.yaml:1:1: expected a key that is a word, got a list");
    CHECK_THAT(mistakes_of("a: [1, 2\nb: 3\n", kNothing), ContainsSubstring("f.yaml:2:2: not valid YAML: "));
    CHECK_THAT(mistakes_of("a: 1\n\tb: 2\n", kNothing), ContainsSubstring("f.yaml:2:"));
}

TEST_CASE("files that cannot be read") {
    const TemporaryFolder folder;
    CHECK(config_error([&] { parse_yaml_file(folder / "none.yaml"); }) ==
          (folder / "none.yaml") + ": no such file");
    CHECK(config_error([&] { parse_yaml_file(folder / ""); }) ==
          (folder / "") + ": expected a file, got a folder");
}

TEST_CASE("unknown keys get a suggestion, or the list of known ones") {
    const auto schema = [](const YamlCursor& root) {
        root.at("linear").find("buffer_length").integer();
        root.find("name").string();
    };
    CHECK(mistakes_of("name: x\nlinear:\n  bufer_lenght: 16\n", schema) ==
          "f.yaml:3:3: linear.bufer_lenght: unknown key `bufer_lenght` (did you mean `buffer_length`?)");
    CHECK(mistakes_of("linear: {}\nzzz: 1\n", schema) ==
          "f.yaml:2:1: zzz: unknown key `zzz`; known: linear, name");
}

TEST_CASE("missing keys stand at their map, wrong kinds at the value") {
    const auto schema = [](const YamlCursor& root) {
        const YamlCursor inner = root.at("inner");
        inner.at("a").integer();
        inner.at("b").integer();
        root.at("list").items(2);
    };
    CHECK(mistakes_of("inner:\n  a: 1\nlist: [1]\n", schema) ==
          "f.yaml:2:3: inner.b: missing required key\n"
          "f.yaml:3:7: list: expected a list of at least 2 values, got 1");
    // One message for a map that is none, however many keys are asked for.
    CHECK(mistakes_of("inner: 5\nlist: {a: 1}\n", schema) ==
          "f.yaml:1:8: inner: expected a map, got `5`\n"
          "f.yaml:2:7: list: expected a list, got a map");
    CHECK(mistakes_of("inner:\nlist: [1, 2]\n", schema) == "f.yaml:1:1: inner: expected a map, got nothing");
    CHECK(mistakes_of("list: [1, 2]\n", schema) == "f.yaml:1:1: inner: missing required key");
}

TEST_CASE("integers") {
    const auto schema = [](const YamlCursor& root) { root.at("m").integer({1, 128}); };
    const auto message = [&](const std::string& value) { return mistakes_of("m: " + value + "\n", schema); };
    const std::string expected = "f.yaml:1:4: m: expected an integer from 1 to 128, got ";
    CHECK(message("16").empty());
    CHECK(message("0") == expected + "`0`");
    CHECK(message("129") == expected + "`129`");
    CHECK(message("-1") == expected + "`-1`");
    CHECK(message("010") == expected + "`010` (a leading zero could mean octal)");
    CHECK(message("1.0") == expected + "`1.0`");
    CHECK(message("1e2") == expected + "`1e2`");
    CHECK(message("0x10") == expected + "`0x10`");
    CHECK(message("+4") == expected + "`+4`");
    CHECK(message("99999999999999999999") == expected + "`99999999999999999999`");
    CHECK(message("\"16\"") == expected + "the string \"16\"");
    CHECK(message("[16]") == expected + "a list");
    CHECK(mistakes_of("m:\n", schema) == "f.yaml:1:1: m: expected an integer from 1 to 128, got nothing");
}

TEST_CASE("numbers") {
    const auto schema = [](const YamlCursor& root) {
        root.at("r").real({.min = 0.0, .max = 1.0, .above_min = true});
    };
    const auto message = [&](const std::string& value) { return mistakes_of("r: " + value + "\n", schema); };
    const std::string expected = "f.yaml:1:4: r: expected a finite number above 0 and of at most 1, got ";
    for (const char* good : {"1", "0.9", "1e-3", "5E-1"}) CHECK(message(good).empty());
    for (const char* bad :
         {"0", "1.5", "-0.5", ".nan", "nan", ".inf", "inf", "1e999", "0.5x", ".5", "00.5", "x"}) {
        CHECK(message(bad) == expected + "`" + bad + "`");
    }
}

TEST_CASE("words, flags and strings") {
    constexpr std::array<std::string_view, 2> kNames{"recurrent", "buffered"};
    const auto form = [&](const YamlCursor& root) { root.at("f").choice<int>(kNames); };
    CHECK(mistakes_of("f: buffered\n", form).empty());
    CHECK(mistakes_of("f: bufered\n", form) ==
          "f.yaml:1:4: f: expected one of recurrent, buffered, got `bufered` (did you mean `buffered`?)");
    const auto flag = [](const YamlCursor& root) { root.at("f").boolean(); };
    CHECK(mistakes_of("f: true\n", flag).empty());
    CHECK(mistakes_of("f: yes\n", flag) == "f.yaml:1:4: f: expected true or false, got `yes`");
    const auto text = [](const YamlCursor& root) { root.at("f").string(); };
    CHECK(mistakes_of("f: \"\"\n", text) == "f.yaml:1:4: f: expected a string, got an empty one");
    CHECK(mistakes_of("f: {}\n", text) == "f.yaml:1:4: f: expected a string, got a map");
}

TEST_CASE("quantities need a unit and a sign that makes sense") {
    const auto bytes = [](const YamlCursor& root) { root.at("q").bytes(); };
    const std::string expected = "f.yaml:1:4: q: expected a size in bytes such as `64 MiB`, got ";
    CHECK(mistakes_of("q: 64\n", bytes) ==
          expected + "`64` without a unit; units: TiB, TB, GiB, GB, MiB, MB, KiB, kB, B");
    CHECK_THAT(mistakes_of("q: 64 MiN\n", bytes),
               ContainsSubstring("with the unit `MiN` (did you mean `MiB`?); units: "));
    CHECK(mistakes_of("q: big\n", bytes) == expected + "`big`");
    CHECK(mistakes_of("q: 0 B\n", bytes) == "f.yaml:1:4: q: expected a size in bytes above zero, got `0 B`");
    const auto rate = [](const YamlCursor& root) { root.at("q").frequency(); };
    CHECK(mistakes_of("q: -3 /s\n", rate) == "f.yaml:1:4: q: expected a rate above zero, got `-3 /s`");
    const auto time = [](const YamlCursor& root) { root.at("q").time(Sign::kNonNegative); };
    CHECK(mistakes_of("q: 0 s\n", time).empty());
    CHECK(mistakes_of("q: -1 ps\n", time) == "f.yaml:1:4: q: expected a time of at least zero, got `-1 ps`");
}

TEST_CASE("values and fallbacks") {
    YamlReader reader;
    const YamlCursor root = reader.root(parse_yaml_text(
        "i: -7\nr: 2.5\nb: true\ns: \"a b\"\nq: 64 MiB\nt: 5 ms\nw: 4.8 TB/s\nf: 989.4 TFLOP/s\nl: [3, 4]\n",
        "f"));
    CHECK(root.at("i").integer() == -7);
    CHECK(root.at("r").real() == 2.5);
    CHECK(root.at("b").boolean());
    CHECK(root.at("s").string() == "a b");
    CHECK(root.at("q").bytes() == Bytes(64LL * 1024 * 1024));
    CHECK(root.at("t").time() == Time(5'000'000'000));
    CHECK(root.at("w").bandwidth() == Bandwidth(4.8e12));
    CHECK(root.at("f").flop_rate() == FlopRate(989.4e12));
    const std::vector<YamlCursor> items = root.at("l").items();
    REQUIRE(items.size() == 2);
    CHECK(items[1].integer() == 4);
    CHECK(items[1].path() == "l[1]");
    CHECK(root.find("absent").integer({}, 42) == 42);
    CHECK(root.find("absent").time(Sign::kPositive, Time(9)) == Time(9));
    CHECK_FALSE(root.find("absent").present());
    CHECK_NOTHROW(reader.finish());
}

TEST_CASE("all mistakes of all files are reported at once, by file and line") {
    const TemporaryFolder folder;
    const std::string device = folder.write("device.yaml", "schema: kvsim/device/1\nsize: 5\nnmae: x\n");
    const std::string other = folder.write("other.yaml", "schema: kvsim/model/1\n");
    const std::string later = folder.write("later.yaml", "schema: kvsim/device/2\n");
    const std::string bare = folder.write("bare.yaml", "name: x\n");
    const std::string message = config_error([&] {
        YamlReader reader;
        CHECK_FALSE(reader.open(other, "device").present());
        CHECK_FALSE(reader.open(later, "device").present());
        CHECK_FALSE(reader.open(bare, "device").present());
        const YamlCursor root = reader.open(device, "device");
        root.at("size").bytes();
        root.at("name").string();
        reader.finish();
    });
    CHECK(message == bare + ":1:1: schema: expected `schema: kvsim/device/1`, got a file without it\n" +
                         device + ":1:1: name: missing required key\n" + device +
                         ":2:7: size: expected a size in bytes such as `64 MiB`, got `5` without a unit; "
                         "units: TiB, TB, GiB, "
                         "GB, MiB, MB, KiB, kB, B\n" +
                         device + ":3:1: nmae: unknown key `nmae` (did you mean `name`?)\n" + later +
                         ":1:9: schema: expected `schema: kvsim/device/1`, got `kvsim/device/2`\n" + other +
                         ":1:9: schema: expected `schema: kvsim/device/1`, got `kvsim/model/1`");
}

TEST_CASE("overrides replace, create maps on the way, and carry their own place") {
    YamlNode tree = parse_yaml_text("a: {x: 1}\nb: word\n", "f.yaml");
    set_path(tree, "a.x", "2");
    set_path(tree, "c.d.e", "[1, 2]");
    set_path(tree, "b.deep", "64 MiB");
    set_path(tree, "a.y", "oops");
    set_path(tree, "empty", "");
    YamlReader reader;
    const YamlCursor root = reader.root(std::move(tree));
    CHECK(root.at("a").at("x").integer() == 2);
    CHECK(root.at("c").at("d").at("e").items().size() == 2);
    CHECK(root.at("b").at("deep").bytes() == Bytes(64LL << 20));
    root.at("empty").integer();
    root.at("a").find("yy");
    CHECK(config_error([&] { reader.finish(); }) ==
          "--set a.y=oops: a.y: unknown key `y`; known: x, yy\n"
          "--set empty=: empty: expected an integer, got nothing");
}

TEST_CASE("overrides that are no assignment") {
    YamlNode tree = parse_yaml_text("a: 1\n", "f.yaml");
    CHECK(config_error([&] { set_path(tree, "a..b", "1"); }) ==
          "--set a..b=1: expected a key path such as linear.form, got `a..b`");
    CHECK(config_error([&] { set_path(tree, "", "1"); }) ==
          "--set =1: expected a key path such as linear.form, got ``");
    CHECK_THAT(config_error([&] { set_path(tree, "a", "[1"); }),
               ContainsSubstring("--set a=[1: not valid YAML"));
    CHECK_THAT(config_error([&] { set_path(tree, "a", "{x: 1, x: 2}"); }),
               ContainsSubstring("duplicate key `x`"));
}

}  // namespace
}  // namespace kvsim
