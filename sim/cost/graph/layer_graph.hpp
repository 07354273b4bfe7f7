// The graph of a layer: operators, what each waits for, and what follows from the durations.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/graph/operator.hpp"

namespace kvsim {

struct CriticalPath {
    Time time;                           // from the first start to the last end
    std::vector<std::size_t> operators;  // in order; their durations sum to `time`
};
// `durations` by operator. Of paths of equal length the one through earlier operators.
CriticalPath critical_path(const OperatorList& list, std::span<const Time> durations);

// Every path from an operator that waits for nothing to one that none waits for, as operators in order. The
// longest of them is the critical path, whatever the durations are.
std::vector<std::vector<std::size_t>> all_paths(const OperatorList& list);

// What Graphviz prints of an operator.
struct GraphLabel {
    std::string text;
    bool critical = false;
};
struct NamedGraph {
    std::string name;
    const OperatorList* list = nullptr;
    std::vector<GraphLabel> labels;  // by operator
};
// One `digraph` with a cluster per layer; operators of the second stream are dashed, critical ones bold.
std::string to_graphviz(std::span<const NamedGraph> graphs);

}  // namespace kvsim
