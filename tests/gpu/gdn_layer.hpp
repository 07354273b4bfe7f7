// A GDN layer in device memory, with the weights and inputs that the CPU reference takes too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/calibrate/row_check.hpp"
#include "kernels/calibrate/stored_numbers.hpp"
#include "kernels/launch.hpp"
#include "kernels/reference/gdn.hpp"
#include "tests/gpu/device_array.hpp"
#include "tests/gpu/noise.hpp"

namespace kvsim {

inline constexpr std::array kTestedStates{StateFormat::kFp32, StateFormat::kBf16, StateFormat::kSplit};
inline constexpr std::array kTestedRecords{RecordFormat::kBf16, RecordFormat::kFp32U};

// Calls with every format that the buffered forms take.
template <class Check>
void for_each_format(const Check& check) {
    for (const StateFormat state : kTestedStates) {
        for (const RecordFormat records : kTestedRecords) check(state, records);
    }
}

constexpr LinearShape gdn_shape(int k_heads, int v_heads, StateFormat state,
                                RecordFormat records = RecordFormat::kBf16) {
    return {Family::kGdn, k_heads, v_heads, 128, 128, state, records};
}

struct GateWeights {
    std::vector<float> a_log, dt_bias;  // [v_heads], never zero
};
GateWeights make_weights(const LinearShape& shape, Noise& noise);

// Inputs of tokens, [tokens, ...]: values of bf16, so that device and reference see the same.
struct TokenInputs {
    std::vector<float> qkv, a, b;
    reference::LinearToken token(const LinearShape& shape, const GateWeights& weights,
                                 std::size_t index) const;
};
TokenInputs make_inputs(const LinearShape& shape, std::size_t tokens, Noise& noise);
// With a such that the decay of every token and head is drawn from [decay_low, 1].
TokenInputs make_inputs(const LinearShape& shape, const GateWeights& weights, std::size_t tokens,
                        double decay_low, Noise& noise);

// One slot's worth of memory after another, in the formats and orders of kernels/launch.hpp.
class GdnLayer {
  public:
    // Random states, or zeros; rings of NaN. capacity 0: no ring.
    GdnLayer(const LinearShape& shape, GateWeights weights, int capacity, int slots, bool zero_states,
             Noise& noise);

    const LinearShape& shape() const { return shape_; }
    const GateWeights& weights() const { return weights_; }
    int capacity() const { return capacity_; }
    int slots() const { return slots_; }
    calibrate::RowContext context(Form form) const;

    // Gives a slot `fill` random records from ring index `start` on; all others are NaN.
    void make_records(int slot, int start, int fill, Noise& noise);
    // State and ring of a slot.
    calibrate::RowSnapshot slot(int slot) const;
    std::vector<float> state(int slot) const;
    // All but the tables of rows, inputs and outputs.
    LinearParams params() const;

  private:
    std::size_t state_bytes() const;
    std::size_t key_count() const;
    std::size_t u_count() const;

    LinearShape shape_;
    GateWeights weights_;
    int capacity_, slots_;
    DeviceArray<float> a_log_, dt_bias_;
    DeviceArray<std::byte> state_, state_low_, ring_k_, ring_u_;
    DeviceArray<float> ring_gate_;
};

// A row of a launch: a request and its cursor.
struct Row {
    int slot = -1;  // negative: a padding row
    int start = 0;
    int fill = 0;
    bool flush = false;
    int accepted = 1;  // of the launch's tokens, by the caller: kernels do not know
};

struct Launch {
    Form form = Form::kBuffered;
    int tokens = 1;  // of every row
    std::vector<Row> rows;
};

// Launches one after the other, with all their inputs, tables and outputs in device memory from the start.
class Player {
  public:
    // `inputs` holds the tokens of the first launch, row by row, then those of the next. An even number of
    // value heads if there are several: a and b of a launch begin at a multiple of four bytes. Refers to
    // `layer` and `launches`.
    Player(const GdnLayer& layer, std::span<const Launch> launches, const TokenInputs& inputs);

    // The next `count` launches; waits for them.
    void play(std::size_t count);
    // Of all launches, [tokens, v_heads, v_dim]; NaN where nothing was written.
    std::vector<float> outputs() const;
    // Of a row of the last launch that stores states, [T, v_heads, v_dim, k_dim].
    std::vector<float> token_states(int row, int tokens) const;

  private:
    const GdnLayer& layer_;
    std::span<const Launch> launches_;
    std::size_t next_ = 0, next_row_ = 0, next_token_ = 0;
    DeviceArray<std::byte> qkv_, a_, b_, out_, token_states_;
    DeviceArray<std::int32_t> slot_, start_, fill_;
    DeviceArray<std::uint8_t> flush_;
};

}  // namespace kvsim
