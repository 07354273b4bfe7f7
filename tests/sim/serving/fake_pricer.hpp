// Step prices for tests: simple functions of the shape.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sim/serving/pricer.hpp"

namespace kvsim {

// A price that is all roofline and moves no bytes.
inline StepPrice price_of(Time time) {
    StepPrice price;
    price.time = time;
    price.time_by_source[static_cast<std::size_t>(Source::kRoofline)] = time;
    return price;
}

// Prices with a function of the shape, and keeps the shapes that it was asked for.
class FakePricer final : public StepPricer {
  public:
    explicit FakePricer(std::function<Time(const StepShape&)> time) : time_(std::move(time)) {}
    StepPrice price(const StepShape& shape) const override {
        shapes_.push_back(shape);
        return price_of(time_(shape));
    }
    const std::vector<StepShape>& shapes() const { return shapes_; }

  private:
    std::function<Time(const StepShape&)> time_;
    mutable std::vector<StepShape> shapes_;
};

// Hashes every field of the shape into a time of at most 1000 ps and into bytes: two runs whose times agree
// to the picosecond have priced the same shapes, but for a chance of 1 in 1000 a step.
class HashPricer final : public StepPricer {
  public:
    StepPrice price(const StepShape& shape) const override {
        std::uint64_t hash = 0xcbf29ce484222325;
        const auto mix = [&](std::int64_t value) {
            hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15;
            hash ^= hash >> 29;
        };
        for (const LinearWork& w : shape.linear) {
            mix(w.sequences);
            mix(w.new_tokens);
            mix(w.buffered_tokens);
            mix(w.flushes);
            mix(w.flushed_tokens);
        }
        mix(shape.decode.sequences);
        mix(shape.decode.context_sum);
        mix(shape.decode.context_max);
        mix(shape.prefill.sequences);
        mix(shape.prefill.new_tokens);
        mix(shape.prefill.cached_tokens);
        mix(shape.prefill.query_key_pairs);
        mix(shape.logit_rows);
        mix(shape.drafts);
        mix(shape.fresh.sequences);
        mix(shape.fresh.context_sum);
        mix(shape.fresh.context_max);
        mix(shape.state_copies);
        mix(shape.folds.states);
        mix(shape.folds.records);
        StepPrice price = price_of(Time(static_cast<std::int64_t>(1 + hash % 1000)));
        for (std::size_t i = 0; i < price.bytes.size(); ++i) {
            price.bytes[i] = Bytes(static_cast<std::int64_t>((hash >> (4 * i)) % 4096));
        }
        // Up to half of a step is due to its flushes.
        std::int64_t flushes = shape.folds.states;
        for (const LinearWork& w : shape.linear) flushes += w.flushes;
        if (flushes > 0) price.flush_time = Time(price.time.value() / (1 + flushes));
        return price;
    }
};

}  // namespace kvsim
