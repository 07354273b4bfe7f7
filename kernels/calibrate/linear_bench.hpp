// Launches of a linear-attention kernel, and their comparison with the CPU reference.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/linear_pools.hpp"
#include "kernels/calibrate/plan.hpp"
#include "kernels/calibrate/row_check.hpp"
#include "kernels/calibrate/timing.hpp"

namespace kvsim::calibrate {

// A set of a case is `batch` rows: consecutive tokens of the pools, with `batch` slots from a random
// permutation; sets share neither tokens nor slots. Launches change states and append records in place, but
// never what they are launched with: a set can be launched any number of times. Decay gates below one keep
// the states bounded.
class LinearBench {
  public:
    // Copies run on `stream`, which must be the one of the launches.
    LinearBench(std::span<const Case> group, const RotationLimits& limits, std::uint64_t seed,
                cudaStream_t stream);

    // Makes the tables of one case of the group current.
    void prepare(const Case& c);
    // One launch of set 0 of the current case on fresh random contents: up to eight rows are compared with
    // the reference, every output must be written, and neighbouring slots must stay as they are.
    Verification verify();
    // The current case. Refers to this object.
    Launches launches() const;

  private:
    std::size_t index(int row) const { return static_cast<std::size_t>(row); }
    LinearParams params(int set) const;
    RowSnapshot row_before(int row) const;
    RowSnapshot row_after(int row) const;
    // The first and the last slot, and those beside that of row 0, as far as no row of set 0 names them.
    std::vector<std::size_t> bystanders() const;
    void check_outputs(Verification& result) const;

    RotationLimits limits_;
    std::uint64_t seed_;
    cudaStream_t stream_;
    LinearPools pools_;

    Case case_;
    int sets_ = 0;
    std::size_t stride_ = 0;  // entries of a set in the table of slots: a multiple of 16, to be aligned
    std::vector<std::int32_t> slot_;  // [sets, stride]
    RowPhases phases_;                // of every set; empty without a ring
    DeviceArray<std::int32_t> device_slot_, device_start_, device_fill_;
    DeviceArray<std::uint8_t> device_flush_;
};

}  // namespace kvsim::calibrate
