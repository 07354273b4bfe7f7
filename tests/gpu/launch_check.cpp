#include "tests/gpu/launch_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>

#include "tests/gpu/comparison_log.hpp"
#include "tests/gpu/parallel.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

using calibrate::RowSnapshot;
using calibrate::Verification;

bool has_ring(Form form) {
    return form == Form::kBuffered || form == Form::kVerifyBuffered;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
        return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    });
}

bool same_rings(const RowSnapshot& a, const RowSnapshot& b) {
    return same_bits(a.ring_k, b.ring_k) && same_bits(a.ring_u, b.ring_u) &&
           same_bits(a.ring_gate, b.ring_gate);
}

// Gives every row that is not padding a slot; two inside, the first and the last stay free.
int draw_slots(std::vector<Row>& rows, Noise& noise) {
    const int slots = static_cast<int>(rows.size()) + 4;
    std::vector<int> order(std::size_t(slots) - 2);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), noise);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].slot >= 0) rows[i].slot = order[i];
    }
    return slots;
}

std::vector<int> free_slots(const std::vector<Row>& rows, int slots) {
    std::vector<int> free;
    for (int s = 0; s < slots; ++s) {
        if (std::none_of(rows.begin(), rows.end(), [s](const Row& row) { return row.slot == s; }))
            free.push_back(s);
    }
    return free;
}

std::vector<float> part(const std::vector<float>& values, std::size_t first, std::size_t count) {
    const auto begin = values.begin() + std::ptrdiff_t(first);
    return {begin, begin + std::ptrdiff_t(count)};
}

// A case on the device.
class CaseRun {
  public:
    CaseRun(const LaunchCase& c, std::uint64_t seed)
        : case_(c),
          noise_(seed),
          launch_(c.launch),
          slots_(draw_slots(launch_.rows, noise_)),
          layer_(c.shape, weights(), c.capacity, slots_, false, noise_),
          inputs_(make_inputs(c.shape, launch_.rows.size() * launch_.tokens, noise_)) {
        if (c.gates == Gates::kExtreme) {
            for (float& a : inputs_.a) {
                if (noise_.chance(0.7)) a = noise_.chance(0.5) ? 60.0f : -60.0f;
            }
        }
        for (const Row& row : launch_.rows) {
            if (row.slot >= 0 && c.capacity > 0) layer_.make_records(row.slot, row.start, row.fill, noise_);
        }
    }

    Verification run() {
        const std::vector<int> rows = compared_rows();
        std::vector<int> others = free_slots(launch_.rows, slots_);
        if (others.size() > 8) others.erase(others.begin() + 4, others.end() - 4);
        Player player(layer_, {&launch_, 1}, inputs_);
        std::vector<RowSnapshot> before, after, others_before;
        for (const int row : rows) before.push_back(snapshot(player, row));
        for (const int slot : others) others_before.push_back(layer_.slot(slot));
        player.play(1);
        outputs_ = player.outputs();
        for (const int row : rows) after.push_back(snapshot(player, row));

        std::vector<Verification> results(rows.size());
        const auto context = layer_.context(launch_.form);
        parallel_for(rows.size(),
                     [&](std::size_t i) { results[i] = calibrate::check_row(context, before[i], after[i]); });
        Verification all;
        const bool finite =
            std::all_of(outputs_.begin(), outputs_.end(), [](float x) { return std::isfinite(x); });
        if (!finite) all.fail("an output is missing or not finite");
        for (std::size_t i = 0; i < rows.size(); ++i) {
            all.max_error = std::max(all.max_error, results[i].max_error);
            if (!results[i].passed()) all.fail(results[i].failure);
            if (!has_ring(launch_.form) && !same_rings(before[i], after[i]))
                all.fail(fmt::format("row {}: a form without a ring wrote to it", rows[i]));
        }
        for (std::size_t i = 0; i < others.size(); ++i) {
            const Verification other = calibrate::check_bystander(others_before[i], layer_.slot(others[i]));
            if (!other.passed()) all.fail(fmt::format("slot {}: {}", others[i], other.failure));
        }
        return all;
    }

  private:
    GateWeights weights() {
        GateWeights w = make_weights(case_.shape, noise_);
        if (case_.gates == Gates::kExtreme) {
            for (float& a_log : w.a_log) a_log = static_cast<float>(noise_.uniform(-4.0, 4.0));
            w.a_log.front() = 4.0f;
        }
        return w;
    }

    std::vector<int> compared_rows() const {
        std::vector<std::uint8_t> flush;
        for (const Row& row : launch_.rows) flush.push_back(row.flush);
        return calibrate::sampled_rows(static_cast<int>(launch_.rows.size()), flush,
                                       std::max(4, std::min<int>(case_.compared, int(launch_.rows.size()))));
    }

    RowSnapshot snapshot(const Player& player, int index) const {
        const Row& row = launch_.rows[std::size_t(index)];
        RowSnapshot s = row.slot >= 0 ? layer_.slot(row.slot) : RowSnapshot{};
        const std::size_t tokens = std::size_t(launch_.tokens), first = std::size_t(index) * tokens;
        const std::size_t heads = std::size_t(case_.shape.v_heads),
                          width = inputs_.qkv.size() / (launch_.rows.size() * tokens);
        s.row = index;
        s.padding = row.slot < 0;
        s.start = row.start;
        s.fill = row.fill;
        s.flush = row.flush;
        s.qkv = part(inputs_.qkv, first * width, tokens * width);
        s.a = part(inputs_.a, first * heads, tokens * heads);
        s.b = part(inputs_.b, first * heads, tokens * heads);
        if (!outputs_.empty()) s.out = part(outputs_, first * heads * 128, tokens * heads * 128);
        s.states = player.token_states(index, launch_.tokens);
        return s;
    }

    const LaunchCase& case_;
    Noise noise_;
    Launch launch_;
    int slots_;
    GdnLayer layer_;
    TokenInputs inputs_;
    std::vector<float> outputs_;
};

}  // namespace

Verification run_case(const LaunchCase& c, std::uint64_t seed) {
    return CaseRun(c, seed).run();
}

void check_case(const LaunchCase& c, std::uint64_t seed) {
    const Verification result = run_case(c, seed);
    INFO(fmt::format("{}, {} state, {} records, heads {}/{}, ring of {}, T = {}, {} rows, seed {}",
                     name(c.launch.form), name(c.shape.state), name(c.shape.records), c.shape.k_heads,
                     c.shape.v_heads, c.capacity, c.launch.tokens, c.launch.rows.size(), seed));
    CHECK(result.failure == "");
    std::string label = fmt::format("{}, {} state", name(c.launch.form), name(c.shape.state));
    if (has_ring(c.launch.form)) label += fmt::format(", {} records", name(c.shape.records));
    logged(label, result.max_error);
}

}  // namespace kvsim
