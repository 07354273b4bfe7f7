#include "sim/cost/graph/layer_graph.hpp"

#include <random>

#include "tests/support/catch.hpp"

using namespace kvsim;

namespace {

Operator node(std::string_view name, std::vector<std::size_t> after, Stream stream = Stream::kMain) {
    Operator op;
    op.name = name;
    op.after = std::move(after);
    op.stream = stream;
    return op;
}

// a, then b and c side by side, then d; the diamond of a second stream.
OperatorList diamond() {
    return {node("a", {}), node("b", {0}), node("c", {0}, Stream::kSecond), node("d", {1, 2})};
}

std::vector<Time> times(std::initializer_list<std::int64_t> ps) {
    std::vector<Time> list;
    for (const std::int64_t t : ps) list.emplace_back(t);
    return list;
}

}  // namespace

TEST_CASE("the critical path goes through the longer branch", "[layer_graph]") {
    const CriticalPath left = critical_path(diamond(), times({1, 10, 4, 2}));
    CHECK(left.time == Time(13));
    CHECK(left.operators == std::vector<std::size_t>{0, 1, 3});
    const CriticalPath right = critical_path(diamond(), times({1, 3, 4, 2}));
    CHECK(right.time == Time(7));
    CHECK(right.operators == std::vector<std::size_t>{0, 2, 3});
    CHECK(critical_path({}, {}).time == Time());
}

TEST_CASE("a chain is the sum of its operators", "[layer_graph]") {
    const OperatorList chain{node("a", {}), node("b", {0}), node("c", {1})};
    CHECK(critical_path(chain, times({5, 6, 7})).time == Time(18));
    CHECK(all_paths(chain) == std::vector<std::vector<std::size_t>>{{0, 1, 2}});
}

TEST_CASE("a second stream that ends last is the end of the layer", "[layer_graph]") {
    const OperatorList open{node("a", {}), node("b", {0}), node("c", {0}, Stream::kSecond)};
    CHECK(critical_path(open, times({1, 2, 30})).operators == std::vector<std::size_t>{0, 2});
}

TEST_CASE("the longest of all paths is the critical one, on random graphs", "[layer_graph]") {
    std::mt19937 random(7);
    for (int trial = 0; trial < 200; ++trial) {
        OperatorList list;
        std::vector<Time> durations;
        const std::size_t size = 1 + random() % 9;
        for (std::size_t i = 0; i < size; ++i) {
            std::vector<std::size_t> after;
            for (std::size_t j = 0; j < i; ++j) {
                if (random() % 3 == 0) after.push_back(j);
            }
            list.push_back(node("op", after));
            durations.emplace_back(1 + random() % 100);
        }
        Time longest;
        for (const auto& path : all_paths(list)) {
            Time sum;
            for (const std::size_t i : path) sum += durations[i];
            longest = std::max(longest, sum);
        }
        const CriticalPath critical = critical_path(list, durations);
        CHECK(critical.time == longest);
        Time sum;
        for (const std::size_t i : critical.operators) sum += durations[i];
        CHECK(sum == longest);
    }
}

TEST_CASE("Graphviz text: nodes, edges, marks of stream and path", "[layer_graph]") {
    const OperatorList list = diamond();
    const NamedGraph graph{"layer L x 24", &list, {{"a", true}, {"b", true}, {"c", false}, {"d", true}}};
    const std::string text = to_graphviz({&graph, 1});
    CHECK(text.starts_with("digraph step {"));
    CHECK_THAT(text, ContainsSubstring("label=\"layer L x 24\""));
    CHECK_THAT(text, ContainsSubstring("n0_2 [label=\"c\", style=dashed]"));
    CHECK_THAT(text, ContainsSubstring("n0_3 [label=\"d\", penwidth=2]"));
    // A layer may be called by any letter.
    const NamedGraph odd{"layer \" x 2, \\", &list, {{"a", true}, {"b", true}, {"c", false}, {"d", true}}};
    CHECK_THAT(to_graphviz({&odd, 1}), ContainsSubstring("label=\"layer \\\" x 2, \\\\\";"));
    for (const char* edge : {"n0_0 -> n0_1", "n0_0 -> n0_2", "n0_1 -> n0_3", "n0_2 -> n0_3"})
        CHECK_THAT(text, ContainsSubstring(edge));
}
