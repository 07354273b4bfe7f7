#include "sim/serving/service.hpp"

#include <algorithm>
#include <memory>

#include "sim/base/check.hpp"
#include "sim/serving/cohort_rows.hpp"

namespace kvsim {

ServicePricer::ServicePricer(const ServiceSpec& service, std::uint64_t seed)
    : service_(service), random_(seed, "service") {
    KVSIM_CHECK(service.mean > Time(), "a service of {} ps", service.mean.value());
}

StepPrice ServicePricer::price(const StepShape&) const {
    StepPrice price;
    price.time = service_.mean;
    if (service_.kind == ServiceSpec::Kind::kExponential) {
        const Time drawn = time_from_seconds(random_.exponential(to_seconds(service_.mean)));
        price.time = std::max(Time(1), drawn);  // a step takes time
    }
    price.time_by_source[static_cast<std::size_t>(Source::kRoofline)] = price.time;
    return price;
}

std::optional<Arrival> ServiceArrivals::next() {
    std::optional<Arrival> arrival = arrivals_.next();
    if (arrival) *arrival = {arrival->time, 1, 1, 0};
    return arrival;
}

ServeSpec service_spec(int replicas) {
    ServeSpec spec;
    spec.replica.max_running = 1;
    spec.replica.step_tokens = 1;
    spec.replica.pool.slots = 1;
    spec.replica.pool.units = 2;  // tokens of prompt and answer
    spec.replicas = replicas;
    spec.shared_queue = true;
    spec.make_rows = [] { return std::make_unique<CohortRows>(DecodeForm{}, 1); };
    return spec;
}

}  // namespace kvsim
