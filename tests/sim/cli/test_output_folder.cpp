#include "sim/cli/output_folder.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "sim/base/error.hpp"
#include "sim/cli/manifest.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;
namespace fs = std::filesystem;

namespace {

struct Scratch {
    fs::path path = fs::temp_directory_path() / ("kvsim_output_" + std::to_string(getpid()));
    Scratch() { fs::create_directories(path); }
    ~Scratch() { fs::remove_all(path); }
};

void write(const fs::path& file, const std::string& text) {
    std::ofstream(file) << text;
}

std::string read(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

ResultFiles results(const std::string& runs) {
    return {runs, make_manifest({}, {}).dump(), "name: x\n"};
}

int entries(const fs::path& folder) {
    return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}));
}

}  // namespace

TEST_CASE("a results folder appears whole, with its parents and without traces of writing") {
    const Scratch scratch;
    write_results(scratch.path / "a" / "b", results("one\n"));
    CHECK(read(scratch.path / "a/b/runs.csv") == "one\n");
    CHECK(read(scratch.path / "a/b/resolved.yaml") == "name: x\n");
    CHECK(fs::exists(scratch.path / "a/b/manifest.json"));
    CHECK(entries(scratch.path / "a") == 1);  // no temporary sibling is left
    const auto others = fs::perms::others_read | fs::perms::others_exec;
    CHECK((fs::status(scratch.path / "a/b").permissions() & others) == others);
}

TEST_CASE("results of ours are replaced, also through a trailing slash and a link") {
    const Scratch scratch;
    const fs::path folder = scratch.path / "out";
    write_results(folder, results("one\n"));
    write_results(folder / "", results("two\n"));
    CHECK(read(folder / "runs.csv") == "two\n");
    fs::create_directory_symlink(folder, scratch.path / "link");
    write_results(scratch.path / "link", results("three\n"));
    CHECK(read(folder / "runs.csv") == "three\n");
    CHECK(fs::is_symlink(scratch.path / "link"));
    CHECK(entries(scratch.path) == 2);
}

TEST_CASE("an empty folder is used") {
    const Scratch scratch;
    fs::create_directory(scratch.path / "out");
    write_results(scratch.path / "out", results("one\n"));
    CHECK(read(scratch.path / "out/runs.csv") == "one\n");
}

TEST_CASE("what is not ours is refused and left alone") {
    const Scratch scratch;
    const fs::path folder = scratch.path / "out";

    SECTION("a folder without a manifest") {
        fs::create_directory(folder);
        write(folder / "thesis.tex", "years of work");
        CHECK_THROWS_AS(write_results(folder, results("x")), ConfigError);
        CHECK(read(folder / "thesis.tex") == "years of work");
    }
    SECTION("the manifest of another program, such as a measured profile") {
        fs::create_directory(folder);
        write(folder / "manifest.json", R"({"gpu": "NVIDIA H200"})");
        CHECK_THROWS_AS(require_replaceable(folder), ConfigError);
    }
    SECTION("a broken manifest") {
        fs::create_directory(folder);
        write(folder / "manifest.json", "{");
        CHECK_THROWS_AS(require_replaceable(folder), ConfigError);
    }
    SECTION("results of ours to which somebody added a file") {
        write_results(folder, results("one\n"));
        write(folder / "notes.txt", "mine");
        CHECK_THROWS_WITH(require_replaceable(folder), ContainsSubstring("notes.txt"));
        CHECK(read(folder / "runs.csv") == "one\n");
    }
    SECTION("a file") {
        write(folder, "text");
        CHECK_THROWS_AS(require_replaceable(folder), ConfigError);
    }
    CHECK(entries(scratch.path) == 1);
}

TEST_CASE("a disk that refuses leaves nothing behind") {
    CHECK_THROWS(write_results("/proc/kvsim/out", results("x")));  // whoever we are
}

TEST_CASE("what cannot be made is known before it is") {
    const Scratch scratch;
    write(scratch.path / "file", "text");
    const std::string below = (scratch.path / "file/out").string();
    CHECK_THROWS_WITH(
        require_writable(below, "--rows"),
        "--rows: `" + below + "` cannot be made: " + (scratch.path / "file").string() + " is no folder");
    CHECK_THROWS_AS(require_replaceable(below), ConfigError);
    require_writable(scratch.path / "a/b/c", "--out");
    require_writable("relative.csv", "--out");
    fs::create_symlink("circle", scratch.path / "circle");
    CHECK_THROWS_AS(require_writable(scratch.path / "circle", "--out"), ConfigError);
    CHECK_THROWS_AS(require_writable(scratch.path / std::string(300, 'a'), "--out"), ConfigError);
    if (geteuid() != 0) {  // root may write anywhere
        fs::permissions(scratch.path, fs::perms::owner_read | fs::perms::owner_exec);
        CHECK_THROWS_WITH(require_writable(scratch.path / "out", "--out"),
                          ContainsSubstring("may not be written to"));
        fs::permissions(scratch.path, fs::perms::owner_all);
    }
}

TEST_CASE("a signal that comes while results are written waits until they stand") {
    const Scratch scratch;
    // The child sends itself the signal from the first moment that a sibling exists, until it dies of it.
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_DFL);  // not Catch2's, which reports it
        std::thread([&] {
            sigset_t none;
            sigemptyset(&none);
            sigaddset(&none, SIGINT);
            pthread_sigmask(SIG_BLOCK, &none, nullptr);
            while (entries(scratch.path) == 0) {
            }
            kill(getpid(), SIGINT);
        }).detach();
        while (true) write_results(scratch.path / "out", results("one\n"));
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
    CHECK(entries(scratch.path) == 1);  // the results, and no sibling
    CHECK(read(scratch.path / "out/runs.csv") == "one\n");
}

TEST_CASE("a file beyond the limit of sizes leaves nothing behind") {
    const Scratch scratch;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_DFL);
        const rlimit tiny{1024, 1024};
        setrlimit(RLIMIT_FSIZE, &tiny);
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        try {
            write_results(scratch.path / "out", results(std::string(1 << 16, 'x')));
        } catch (const std::exception&) {
        }
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ));
    CHECK(entries(scratch.path) == 0);
}

TEST_CASE("one file takes the place of its kind only") {
    const Scratch scratch;
    const auto file = scratch.path / "out.csv";
    const auto text = [&] {
        std::ifstream in(file);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    replace_file(file, "a,b\n1,2\n");
    replace_file(file, "# a comment\na,b\n3,4\n");
    CHECK(text() == "# a comment\na,b\n3,4\n");
    CHECK_THROWS_AS(replace_file(file, "schema: kvsim/fit/1\n"), ConfigError);
    CHECK_THROWS_AS(replace_file(scratch.path, "a,b\n"), ConfigError);
    fs::create_symlink("out.csv", scratch.path / "link");
    replace_file(scratch.path / "link", "# a comment\na,b\n3,4\n");
    CHECK(fs::is_symlink(scratch.path / "link"));
    fs::remove(scratch.path / "link");
    CHECK(text() == "# a comment\na,b\n3,4\n");
    CHECK(entries(scratch.path) == 1);
}

TEST_CASE("hashes of inputs are those of git hash-object") {
    // printf '' | git hash-object --stdin; printf 'hello\n' | git hash-object --stdin
    const Scratch scratch;
    write(scratch.path / "empty", "");
    write(scratch.path / "hello", "hello\n");
    CHECK(git_blob_id(scratch.path / "empty") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    CHECK(git_blob_id(scratch.path / "hello") == "ce013625030ba8dba906f756967f9e9ca394464a");
    CHECK_THROWS_AS(git_blob_id(scratch.path / "absent"), ConfigError);
}

TEST_CASE("the manifest lists command and inputs") {
    const Scratch scratch;
    write(scratch.path / "hello", "hello\n");
    const std::string hello = (scratch.path / "hello").string();
    const std::vector<std::string> command{"kvsim", "run", "x.yaml"};
    const auto manifest = make_manifest(command, {hello});
    CHECK(manifest["kind"] == "kvsim results");
    CHECK(manifest["schema"] == kResultSchema);
    CHECK(manifest["command"] == nlohmann::ordered_json{"kvsim", "run", "x.yaml"});
    CHECK(manifest["inputs"][0]["file"] == hello);
    CHECK(manifest["inputs"][0]["git_blob"] == "ce013625030ba8dba906f756967f9e9ca394464a");
    CHECK(manifest["date"].get<std::string>().size() == std::string("2026-01-01T00:00:00Z").size());
}
