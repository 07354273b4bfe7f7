// Device memory of a linear-attention kernel: states, rings, inputs and outputs in every format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/plan.hpp"
#include "kernels/calibrate/row_check.hpp"
#include "kernels/calibrate/stored_numbers.hpp"
#include "kernels/launch.hpp"

namespace kvsim::calibrate {

// Equal blocks of numbers, one for each slot or token, with random contents that repeat after a few blocks.
class DevicePool {
  public:
    DevicePool() = default;
    // `pattern` holds whole blocks of `width` numbers. Its contents are there after restore().
    DevicePool(NumberFormat format, std::size_t width, std::size_t blocks, std::span<const float> pattern);
    // Without random contents.
    DevicePool(NumberFormat format, std::size_t width, std::size_t blocks);

    void restore(std::size_t blocks, cudaStream_t stream);
    // NaN into the first blocks.
    void poison(std::size_t blocks);
    std::vector<std::byte> bytes(std::size_t first, std::size_t blocks) const;
    std::vector<float> numbers(std::size_t first, std::size_t blocks) const;
    // Address of a block; null for an empty pool.
    std::byte* at(std::size_t block) const;

  private:
    NumberFormat format_ = NumberFormat::kFp32;
    std::size_t block_bytes_ = 0;
    DeviceArray<std::byte> memory_, pattern_;
};

// All pools for the cases of one group: slots with a state and a ring, and tokens with inputs and outputs.
// Token t belongs to no slot.
class LinearPools {
  public:
    // Room for every case under its rotation, filled on `stream`.
    LinearPools(std::span<const Case> group, const RotationLimits& limits, std::uint64_t seed,
                cudaStream_t stream);

    // Random contents in the first `slots` slots again; enqueued.
    void restore_slots(std::size_t slots, cudaStream_t stream);
    // NaN into what the first `tokens` tokens write.
    void poison(std::size_t tokens);

    std::size_t slots() const { return slots_; }
    // All but the tables of slots, cursors and flags: launches whose first row begins at `first_token`.
    LinearParams params(std::size_t first_token) const;
    RowContext context(Form form) const { return {shape_, capacity_, a_log_, dt_bias_, form}; }

    // What is on the device now: the state and the ring of a slot; inputs, or outputs, of `count` tokens.
    RowSnapshot slot_snapshot(std::size_t slot) const;
    void read_inputs(std::size_t first_token, std::size_t count, RowSnapshot& row) const;
    void read_outputs(std::size_t first_token, std::size_t count, RowSnapshot& row) const;
    std::vector<float> outputs(std::size_t count) const { return out_.numbers(0, count); }

  private:
    void make_weights(std::mt19937_64& random);
    void make_tokens(bool stored, std::mt19937_64& random);
    void make_states(std::mt19937_64& random);
    void make_rings(std::mt19937_64& random);

    LinearShape shape_;
    int capacity_ = 0;  // of a ring; 0 for forms without
    std::size_t slots_ = 0, tokens_ = 0;
    std::vector<float> a_log_, dt_bias_;  // [v_heads]
    DeviceArray<float> device_a_log_, device_dt_bias_;
    DevicePool qkv_, a_, b_, out_, token_states_;                     // by token
    DevicePool state_, state_low_, ring_keys_, ring_u_, ring_gates_;  // by slot
};

}  // namespace kvsim::calibrate
