#include "sim/cost/graph/layer_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/check.hpp"

namespace kvsim {

namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

Graph graph_of(const OperatorList& list) {
    Graph graph(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
        for (const std::size_t before : list[i].after) {
            KVSIM_CHECK(before < i, "{} waits for an operator that follows it", list[i].name);
            boost::add_edge(before, i, graph);
        }
    }
    return graph;
}

std::vector<std::size_t> in_order(const Graph& graph) {
    std::vector<std::size_t> order;
    boost::topological_sort(graph, std::back_inserter(order));
    std::reverse(order.begin(), order.end());
    return order;
}

void extend(const Graph& graph, std::size_t node, std::vector<std::size_t>& path,
            std::vector<std::vector<std::size_t>>& paths) {
    path.push_back(node);
    if (boost::out_degree(node, graph) == 0) paths.push_back(path);
    for (const auto& edge : boost::make_iterator_range(boost::out_edges(node, graph)))
        extend(graph, boost::target(edge, graph), path, paths);
    path.pop_back();
}

// A string of the DOT language: layers are called by any letter of a pattern.
std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + '"';
}

}  // namespace

CriticalPath critical_path(const OperatorList& list, std::span<const Time> durations) {
    KVSIM_CHECK(durations.size() == list.size(), "{} durations of {} operators", durations.size(),
                list.size());
    const Graph graph = graph_of(list);
    std::vector<Time> ends(list.size());
    std::vector<std::optional<std::size_t>> before(list.size());
    std::optional<std::size_t> last;
    for (const std::size_t node : in_order(graph)) {
        for (const auto& edge : boost::make_iterator_range(boost::in_edges(node, graph))) {
            const std::size_t source = boost::source(edge, graph);
            if (!before[node] || ends[source] > ends[*before[node]]) before[node] = source;
        }
        ends[node] = durations[node] + (before[node] ? ends[*before[node]] : Time());
        if (!last || ends[node] > ends[*last]) last = node;
    }
    CriticalPath path;
    if (!last) return path;
    path.time = ends[*last];
    for (std::optional<std::size_t> node = last; node; node = before[*node]) path.operators.push_back(*node);
    std::reverse(path.operators.begin(), path.operators.end());
    return path;
}

std::vector<std::vector<std::size_t>> all_paths(const OperatorList& list) {
    const Graph graph = graph_of(list);
    std::vector<std::vector<std::size_t>> paths;
    std::vector<std::size_t> path;
    for (std::size_t node = 0; node < list.size(); ++node) {
        if (boost::in_degree(node, graph) == 0) extend(graph, node, path, paths);
    }
    return paths;
}

std::string to_graphviz(std::span<const NamedGraph> graphs) {
    std::string text = "digraph step {\n  rankdir=TB;\n  node [shape=box, fontname=\"Helvetica\"];\n";
    for (std::size_t g = 0; g < graphs.size(); ++g) {
        const NamedGraph& named = graphs[g];
        text += fmt::format("  subgraph cluster_{} {{\n    label={};\n", g, quoted(named.name));
        for (std::size_t i = 0; i < named.list->size(); ++i) {
            const bool second = (*named.list)[i].stream == Stream::kSecond;
            text +=
                fmt::format("    n{}_{} [label=\"{}\"{}{}];\n", g, i, named.labels[i].text,
                            second ? ", style=dashed" : "", named.labels[i].critical ? ", penwidth=2" : "");
        }
        const Graph graph = graph_of(*named.list);
        for (const auto& edge : boost::make_iterator_range(boost::edges(graph)))
            text += fmt::format("    n{0}_{1} -> n{0}_{2};\n", g, boost::source(edge, graph),
                                boost::target(edge, graph));
        text += "  }\n";
    }
    return text + "}\n";
}

}  // namespace kvsim
