// The grid file of a calibration (configs/calibration/*.yaml) and its expansion into cases.
#pragma once

#include <string>
#include <vector>

#include "kernels/calibrate/plan.hpp"

namespace kvsim::calibrate {

// A fill level: a number, or a word that depends on the capacity C of the ring and the T new tokens of a row.
struct FillSpec {
    enum class Kind : std::uint8_t {
        kExact,
        kMiddle,
        kLast,
        kAll
    };  // fill; (C-T)/2; C-T; every one of 0..C-T
    Kind kind = Kind::kExact;
    int fill = 0;
};

// Rows that flush in a mixed launch.
struct FlushRowsSpec {
    enum class Kind : std::uint8_t { kCount, kBatchShare, kSteady };  // n; B/n; B/C, as servers run them
    Kind kind = Kind::kCount;
    int n = 1;
};

// One entry of the list `linear`: the product of its lists.
struct LinearSweep {
    LinearShape shape;  // v_heads from the list below
    Kernel kernel = Kernel::kLinearRecurrent;
    std::vector<int> v_heads;
    std::vector<int> batch;
    std::vector<int> warm_batch;                  // further rows with a warm L2 (recurrent only)
    std::vector<int> tokens{1};                   // T; verify only
    std::vector<int> buffer_length{0};            // forms with a ring, as all that follow
    std::vector<FillSpec> fill;                   // no row flushes
    std::vector<FillSpec> flush_fill;             // every row flushes, from this fill
    std::vector<FlushRowsSpec> mixed_flush_rows;  // some rows flush, in mixed phases
};

// Cases of one sweep, by shape, capacity, tokens, batch and kind. Equal cases appear once: that all rows
// flush from a full ring is reached from `flush_fill: [last]` and from `mixed_flush_rows: [B]`. Numbers of
// flushing rows below one or above the batch are left out, and so are flushes that would fold no record.
std::vector<Case> expand(const LinearSweep& sweep);

// Sizes smallest, 2 smallest, 4 smallest ... up to largest.
std::vector<Case> expand(Kernel probe, Bytes smallest, Bytes largest);

// All cases of a grid file, in the order of Kernel, those of a group together. Throws ConfigError with every
// mistake.
std::vector<Case> load_grid(const std::string& file);

}  // namespace kvsim::calibrate
