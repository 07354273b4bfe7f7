#include "tests/gpu/history.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>

#include "tests/gpu/parallel.hpp"

namespace kvsim {
namespace {

constexpr double kChanceOfFlush = 0.05, kChanceOfAbsence = 0.2, kChanceOfPadding = 0.2;

bool verifies(Form form) {
    return form == Form::kVerifyBuffered || form == Form::kVerifyStored;
}

// Calls with (index of the launch, launch, row, index of the row's first token), launch by launch.
template <class Visit>
void for_each_row(const History& history, const Visit& visit) {
    std::size_t token = 0;
    for (std::size_t i = 0; i < history.launches.size(); ++i) {
        const Launch& launch = history.launches[i];
        for (const Row& row : launch.rows) {
            visit(i, launch, row, token);
            token += std::size_t(launch.tokens);
        }
    }
}

// Where a request stands; moves as kernels/launch.hpp says.
struct Cursor {
    int start = 0, fill = 0;

    void move(const Launch& launch, const Row& row, int capacity) {
        const bool verify = verifies(launch.form);
        const int folded = row.flush ? fill + (verify ? 0 : 1) : 0;
        fill += (verify ? row.accepted : 1) - folded;
        start = (start + folded) % capacity;
    }
};

Launch mixed_launch(const MixedScript& s, const std::vector<Cursor>& cursors, Noise& noise) {
    const bool verify = !noise.chance(s.decode_share);
    Launch launch{
        verify ? Form::kVerifyBuffered : Form::kBuffered, verify ? noise.pick(1, kMaxTokens) : 1, {}};
    for (int r = 0; r < s.requests; ++r) {
        if (noise.chance(kChanceOfAbsence)) continue;
        const Cursor& c = cursors[std::size_t(r)];
        const bool room = c.fill + launch.tokens + kMaxTokens <= s.capacity;
        const int accepted = verify ? noise.pick(0, launch.tokens) : 1;
        launch.rows.push_back({r + 1, c.start, c.fill, !room || noise.chance(kChanceOfFlush), accepted});
    }
    if (launch.rows.empty() || noise.chance(kChanceOfPadding)) launch.rows.push_back({-1, 0, 0, false, 0});
    std::shuffle(launch.rows.begin(), launch.rows.end(), noise);
    return launch;
}

// Verifies one draft of everybody, rejects it and folds all records into the states.
Launch settling_launch(const std::vector<Cursor>& cursors) {
    Launch launch{Form::kVerifyBuffered, 1, {}};
    for (std::size_t r = 0; r < cursors.size(); ++r)
        launch.rows.push_back({static_cast<int>(r) + 1, cursors[r].start, cursors[r].fill, true, 0});
    return launch;
}

// The tokens of a row in the recurrent form; only accepted ones stay in the state.
void follow_row(const History& h, const Launch& launch, const Row& row, std::size_t first_token,
                std::vector<double>& state, std::vector<double>& outputs) {
    const std::size_t width = std::size_t(h.shape.v_heads) * h.shape.v_dim;
    const int accepted = verifies(launch.form) ? row.accepted : 1;
    std::vector<double> drafted;
    for (int t = 0; t < launch.tokens; ++t) {
        if (t == accepted) drafted = state;
        outputs.resize(outputs.size() + width);
        reference::recurrent_step(h.shape, h.inputs.token(h.shape, h.weights, first_token + std::size_t(t)),
                                  t < accepted ? state : drafted, std::span(outputs).last(width));
    }
}

RequestTruth follow_request(const History& h, int slot) {
    RequestTruth truth;
    std::vector<double> state(std::size_t(h.shape.v_heads) * h.shape.v_dim * h.shape.k_dim);
    std::size_t passed = 0;
    const auto pass_checkpoints = [&](std::size_t launch) {
        for (; passed < h.checkpoints.size() && h.checkpoints[passed] < launch; ++passed)
            truth.states.push_back(state);
    };
    for_each_row(h, [&](std::size_t index, const Launch& launch, const Row& row, std::size_t token) {
        pass_checkpoints(index);
        if (row.slot == slot) follow_row(h, launch, row, token, state, truth.outputs);
    });
    pass_checkpoints(h.launches.size());
    return truth;
}

// Mean error of a request's outputs in each window.
std::vector<double> output_errors(const History& h, int slot, std::span<const float> outputs,
                                  const RequestTruth& truth) {
    const std::size_t width = std::size_t(h.shape.v_heads) * h.shape.v_dim;
    std::vector<double> sums(h.checkpoints.size()), counts(h.checkpoints.size()), value(width);
    std::size_t window = 0, next = 0;
    for_each_row(h, [&](std::size_t index, const Launch& launch, const Row& row, std::size_t token) {
        if (index > h.checkpoints[window]) ++window;
        if (row.slot != slot) return;
        for (int t = 0; t < launch.tokens; ++t, ++next) {
            const auto out = outputs.subspan((token + std::size_t(t)) * width, width);
            value.assign(out.begin(), out.end());
            sums[window] +=
                reference::relative_error(value, std::span(truth.outputs).subspan(next * width, width));
            ++counts[window];
        }
    });
    for (std::size_t w = 0; w < sums.size(); ++w) sums[w] /= counts[w];
    return sums;
}

void require_zero_padding(const History& h, std::span<const float> outputs) {
    const std::size_t width = std::size_t(h.shape.v_heads) * h.shape.v_dim;
    for_each_row(h, [&](std::size_t, const Launch& launch, const Row& row, std::size_t token) {
        if (row.slot >= 0) return;
        const auto out = outputs.subspan(token * width, std::size_t(launch.tokens) * width);
        if (!std::all_of(out.begin(), out.end(), [](float x) { return x == 0.0f; }))
            throw std::runtime_error("the output of a padding row is not zero");
    });
}

template <class Get>
double mean_over(const std::vector<RequestErrors>& errors, const Get& get) {
    double sum = 0.0;
    for (const RequestErrors& e : errors) sum += get(e);
    return sum / double(errors.size());
}

// NaN and infinity count as largest.
double largest(const std::vector<RequestErrors>& errors, std::vector<double> RequestErrors::*part) {
    double most = 0.0;
    for (const RequestErrors& e : errors) {
        for (const double x : e.*part) most = x <= most ? most : x;
    }
    return most;
}

}  // namespace

std::size_t History::tokens() const {
    std::size_t count = 0;
    for (const Launch& launch : launches) count += launch.rows.size() * std::size_t(launch.tokens);
    return count;
}

History decode_history(const LinearShape& shape, const DecodeScript& s, std::uint64_t seed) {
    Noise noise(seed);
    History h{shape, s.requests, s.capacity, make_weights(shape, noise), {}, {}, {}};
    for (int t = 0; t < s.tokens; ++t) {
        const int fill = t % s.period, start = t / s.period * s.period % s.capacity;
        Launch launch{Form::kBuffered, 1, {}};
        for (int r = 0; r < s.requests; ++r)
            launch.rows.push_back({r + 1, start, fill, fill == s.period - 1});
        h.launches.push_back(launch);
        if (t % s.window == s.window - 1) h.checkpoints.push_back(std::size_t(t));
    }
    h.inputs = make_inputs(shape, h.weights, h.tokens(), s.decay_low, noise);
    return h;
}

History mixed_history(const LinearShape& shape, const MixedScript& s, std::uint64_t seed) {
    Noise noise(seed);
    History h{shape, s.requests, s.capacity, make_weights(shape, noise), {}, {}, {}};
    std::vector<Cursor> cursors(static_cast<std::size_t>(s.requests));
    for (int i = 0; i < s.launches; ++i) {
        const bool settles = i % s.window == s.window - 1;
        h.launches.push_back(settles ? settling_launch(cursors) : mixed_launch(s, cursors, noise));
        for (const Row& row : h.launches.back().rows) {
            if (row.slot >= 0) cursors[std::size_t(row.slot) - 1].move(h.launches.back(), row, s.capacity);
        }
        if (settles) h.checkpoints.push_back(std::size_t(i));
    }
    h.inputs = make_inputs(shape, h.weights, h.tokens(), s.decay_low, noise);
    return h;
}

std::vector<RequestTruth> follow(const History& history) {
    std::vector<RequestTruth> truth(static_cast<std::size_t>(history.requests));
    parallel_for(truth.size(),
                 [&](std::size_t r) { truth[r] = follow_request(history, static_cast<int>(r) + 1); });
    return truth;
}

std::vector<RequestErrors> play_and_compare(const History& h, const LinearShape& shape,
                                            const std::vector<RequestTruth>& truth) {
    Noise unused(0);
    const GdnLayer layer(shape, h.weights, h.capacity, h.slots(), true, unused);
    Player player(layer, h.launches, h.inputs);
    std::vector<RequestErrors> errors(truth.size());
    std::size_t played = 0;
    for (std::size_t c = 0; c < h.checkpoints.size(); ++c) {
        player.play(h.checkpoints[c] + 1 - played);
        played = h.checkpoints[c] + 1;
        for (std::size_t r = 0; r < truth.size(); ++r) {
            const std::vector<float> state = layer.state(static_cast<int>(r) + 1);
            errors[r].state.push_back(reference::relative_error(
                std::vector<double>(state.begin(), state.end()), truth[r].states[c]));
        }
    }
    const std::vector<float> outputs = player.outputs();
    require_zero_padding(h, outputs);
    parallel_for(truth.size(), [&](std::size_t r) {
        errors[r].output = output_errors(h, static_cast<int>(r) + 1, outputs, truth[r]);
    });
    return errors;
}

Drift drift_of(const std::vector<RequestErrors>& errors) {
    return {mean_over(errors, [](const RequestErrors& e) { return e.output.front(); }),
            mean_over(errors, [](const RequestErrors& e) { return e.output.back(); }),
            mean_over(errors, [](const RequestErrors& e) { return e.state.front(); }),
            mean_over(errors, [](const RequestErrors& e) { return e.state.back(); })};
}

double largest_output_error(const std::vector<RequestErrors>& errors) {
    return largest(errors, &RequestErrors::output);
}
double largest_state_error(const std::vector<RequestErrors>& errors) {
    return largest(errors, &RequestErrors::state);
}

}  // namespace kvsim
