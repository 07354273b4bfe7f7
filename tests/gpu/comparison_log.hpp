// Counts comparisons with the reference and keeps the largest error, for the summary that is printed at the
// end.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kvsim {

struct ComparisonEntry {
    std::int64_t count = 0;
    double largest = 0.0;
};

inline std::map<std::string, ComparisonEntry>& comparison_log() {
    static std::map<std::string, ComparisonEntry> log;
    return log;
}

// Records one comparison and hands the error on.
inline double logged(const std::string& what, double error) {
    ComparisonEntry& entry = comparison_log()[what];
    ++entry.count;
    entry.largest = !(error <= entry.largest) ? error : entry.largest;
    return error;
}

}  // namespace kvsim
