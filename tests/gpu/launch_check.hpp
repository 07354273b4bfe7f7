// One launch on random data, compared row by row with the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/calibrate/row_check.hpp"
#include "tests/gpu/gdn_layer.hpp"

namespace kvsim {

enum class Gates : std::uint8_t {
    kUsual,    // decays around 0.9
    kExtreme,  // a = +-60 and A_log from -4 to 4: from no decay at all to none that fp32 can hold
};

struct LaunchCase {
    LinearShape shape;
    int capacity = 0;  // of the ring; forms without one must leave it alone
    Launch launch;     // slots are drawn here; rows that have a negative one stay padding rows
    Gates gates = Gates::kUsual;
    int compared = 1 << 30;  // rows, at most; chosen by sampled_rows
};

// Checks the outputs, states and records of the compared rows as check_row does, that every output of every
// row is finite, that forms without a ring leave it alone, and that slots which no row names (the first and
// the last among them) stay as they are, to the bit.
calibrate::Verification run_case(const LaunchCase& c, std::uint64_t seed);

// Fails the current test with what was wrong, and logs the largest error of an output.
void check_case(const LaunchCase& c, std::uint64_t seed);

// A row that is to get a slot.
inline Row live_row(int start = 0, int fill = 0, bool flush = false) {
    return {0, start, fill, flush};
}
// Rows at random cursors that leave room for `tokens`; a few flush, a few are padding.
inline std::vector<Row> mixed_rows(int count, int capacity, int tokens, Noise& noise) {
    std::vector<Row> rows;
    for (int i = 0; i < count; ++i) {
        rows.push_back(
            live_row(noise.pick(0, capacity - 1), noise.pick(0, capacity - tokens), noise.chance(0.2)));
        if (noise.chance(0.04)) rows.back().slot = -1;
    }
    return rows;
}

}  // namespace kvsim
