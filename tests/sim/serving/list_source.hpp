// Arrivals from a list, and serving specifications for tests.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sim/serving/cohort_rows.hpp"
#include "sim/serving/serve.hpp"

namespace kvsim {

class ListSource final : public ArrivalSource {
  public:
    explicit ListSource(std::vector<Arrival> arrivals) : arrivals_(std::move(arrivals)) {
        counts_.read = static_cast<std::int64_t>(arrivals_.size());
    }
    ListSource(std::vector<Arrival> arrivals, const ArrivalCounts& counts)
        : arrivals_(std::move(arrivals)), counts_(counts) {}

    std::optional<Arrival> next() override {
        if (next_ == arrivals_.size()) return std::nullopt;
        return arrivals_[next_++];
    }
    void left(Time) override {}
    std::span<const std::uint64_t> blocks() const override { return {}; }
    ArrivalCounts counts() const override { return counts_; }

  private:
    std::vector<Arrival> arrivals_;
    ArrivalCounts counts_;
    std::size_t next_ = 0;
};

// A pool of slots and tokens apart.
inline PoolSize split_pool(std::int64_t slots, std::int64_t tokens, std::int64_t page_tokens = 1) {
    PoolSize size;
    size.slots = slots;
    size.units = tokens / page_tokens;
    size.page_tokens = page_tokens;
    return size;
}

inline ServeSpec serve_spec(const ReplicaSpec& replica, const LinearServing& linear,
                            std::optional<Time> horizon = std::nullopt) {
    ServeSpec spec;
    spec.replica = replica;
    spec.horizon = horizon;
    const std::int64_t page = replica.pool.page_tokens;
    spec.make_rows = [linear, page] { return std::make_unique<CohortRows>(make_decode_form(linear), page); };
    return spec;
}

inline RunResult serve_list(std::vector<Arrival> arrivals, const ServeSpec& spec, const StepPricer& pricer) {
    ListSource source(std::move(arrivals));
    return serve(spec, source, pricer);
}

}  // namespace kvsim
