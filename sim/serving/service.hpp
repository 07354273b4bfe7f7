// The test configuration `service`: requests that take a constant or exponential time each, one at a time on
// each replica, from one queue. M/D/1, M/M/1 and M/M/k through the same loop as everything else.
#pragma once

#include <cstdint>

#include "sim/base/random.hpp"
#include "sim/memory/serving_spec.hpp"
#include "sim/serving/pricer.hpp"
#include "sim/serving/serve.hpp"
#include "sim/workload/arrivals.hpp"

namespace kvsim {

// Draws a service time per step, from the stream `service`.
class ServicePricer final : public StepPricer {
  public:
    ServicePricer(const ServiceSpec& service, std::uint64_t seed);
    StepPrice price(const StepShape& shape) const override;

  private:
    ServiceSpec service_;
    mutable RandomStream random_;
};

// The same arrivals with prompts and answers of one token, so that a request is one step.
class ServiceArrivals final : public ArrivalSource {
  public:
    explicit ServiceArrivals(ArrivalSource& arrivals) : arrivals_(arrivals) {}

    std::optional<Arrival> next() override;
    void left(Time now) override { arrivals_.left(now); }
    std::span<const std::uint64_t> blocks() const override { return {}; }
    ArrivalCounts counts() const override { return arrivals_.counts(); }

  private:
    ArrivalSource& arrivals_;
};

// `replicas` servers before which all requests wait in one queue, in order of arrival.
ServeSpec service_spec(int replicas);

}  // namespace kvsim
