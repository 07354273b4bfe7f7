// Device buffers of a linear-attention kernel, and its comparison with the CPU reference.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/plan.hpp"
#include "kernels/calibrate/row_check.hpp"
#include "kernels/calibrate/timing.hpp"
#include "kernels/launch.hpp"

namespace kvsim::calibrate {

// Pools for all cases of one group. Slots hold random states and rings; row r of the input pool belongs to no
// slot.
//
// A set of a case is `batch` consecutive rows of the input pool with `batch` slots from a random permutation
// of the slot pool; sets share neither rows nor slots. Launches change states and append records in place,
// but never what they are launched with: a set can be launched any number of times. Decay gates below one
// keep the states bounded.
class LinearBench {
  public:
    // Copies run on `stream`, which must be the one of the launches.
    LinearBench(std::span<const Case> group, Bytes l2_capacity, std::uint64_t seed, cudaStream_t stream);

    // Restores all pools to their random contents and makes the tables of one case current.
    void prepare(const Case& c);
    // One launch of set 0 of the current case, compared with the reference on up to eight rows; every output
    // must be written.
    Verification verify();
    // The current case. Refers to this object.
    Launches launches() const;

  private:
    // Random contents, repeated over a pool of many slots (or rows).
    struct Patterns {
        DeviceArray<__nv_bfloat16> qkv, a, b;  // of a few input rows
        DeviceArray<float> state;              // of a few slots, as all that follow
        DeviceArray<__nv_bfloat16> ring_k, ring_u;
        DeviceArray<float> ring_gate;
    };

    void make_patterns(std::mt19937_64& random);
    void make_ring_patterns(std::mt19937_64& random);
    void allocate();
    LinearDecodeParams params(int set) const;
    // Row `row` of set 0, as it is on the device now.
    RowSnapshot snapshot(int row) const;

    LinearShape shape_;
    int capacity_;       // of a ring; 0 for the recurrent form
    std::size_t slots_;  // also rows of the input pool
    Bytes l2_capacity_;
    std::uint64_t seed_;
    cudaStream_t stream_;

    Patterns patterns_;
    std::vector<float> a_log_, dt_bias_;
    DeviceArray<float> device_a_log_, device_dt_bias_;
    DeviceArray<__nv_bfloat16> qkv_, a_, b_, out_;  // [slots, ...]
    DeviceArray<float> state_;
    DeviceArray<__nv_bfloat16> ring_k_, ring_u_;
    DeviceArray<float> ring_gate_;

    Case case_;
    int sets_ = 0;
    std::size_t stride_ = 0;  // entries of a set in the tables: a multiple of 16, as launches want alignment
    std::vector<std::int32_t> slot_;  // [sets, stride]
    RowPhases phases_;                // of every set
    DeviceArray<std::int32_t> device_slot_, device_fill_;
    DeviceArray<std::uint8_t> device_flush_;
};

}  // namespace kvsim::calibrate
