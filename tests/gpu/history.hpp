// Requests served over thousands of launches, compared with the recurrent form in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/gpu/gdn_layer.hpp"

namespace kvsim {

// Request r has slot r + 1 and begins with a zero state. Slot 0 belongs to nobody.
struct History {
    LinearShape shape;
    int requests = 0;
    int capacity = 0;
    GateWeights weights;
    std::vector<Launch> launches;
    TokenInputs inputs;
    // Launches after which no request has tokens that are not in its state; the last one is among them.
    std::vector<std::size_t> checkpoints;

    std::size_t tokens() const;
    int slots() const { return requests + 1; }
};

// Decode of every request, one token a launch, that flushes every `period` tokens; a checkpoint every
// `window`.
struct DecodeScript {
    int requests, tokens, capacity, period, window;
    double decay_low;  // the decay of a token is drawn from [decay_low, 1]
};
History decode_history(const LinearShape& shape, const DecodeScript& script, std::uint64_t seed);

// Launches of random requests in random order, with padding rows: verifications of 1 to 9 drafts of which a
// random number is accepted, and decode steps; flushes by chance, and where the ring would leave no room
// for 9.
struct MixedScript {
    int requests, launches, capacity, window;
    double decode_share;  // of launches
    double decay_low;
};
History mixed_history(const LinearShape& shape, const MixedScript& script, std::uint64_t seed);

// What the reference makes of one request.
struct RequestTruth {
    std::vector<double> outputs;              // of its tokens in the order of launches, [v_heads, v_dim] each
    std::vector<std::vector<double>> states;  // at the checkpoints
};
std::vector<RequestTruth> follow(const History& history);

// ||x - truth|| / ||truth|| over all heads, by checkpoint: of outputs the mean over the tokens since the one
// before, rejected drafts included; of states at the checkpoint.
struct RequestErrors {
    std::vector<double> output, state;
};
// Plays the history with the formats of `shape`, which may differ from those of the history.
std::vector<RequestErrors> play_and_compare(const History& history, const LinearShape& shape,
                                            const std::vector<RequestTruth>& truth);

// Means over requests of the first and the last window.
struct Drift {
    double output_first = 0.0, output_last = 0.0, state_first = 0.0, state_last = 0.0;
};
Drift drift_of(const std::vector<RequestErrors>& errors);

// Over all requests and windows.
double largest_output_error(const std::vector<RequestErrors>& errors);
double largest_state_error(const std::vector<RequestErrors>& errors);

}  // namespace kvsim
