#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/check.hpp"
#include "sim/base/random.hpp"
#include "sim/workload/workload.hpp"

namespace kvsim {
namespace {

// Tokens at quantile u of [0, 1), linear between the given ones: the inverse of the distribution function.
double empirical_quantile(const std::vector<double>& tokens, double u) {
    const double position = u * static_cast<double>(tokens.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, tokens.size() - 1);
    return tokens[below] + (position - std::floor(position)) * (tokens[above] - tokens[below]);
}

double draw(const LengthDistribution& lengths, RandomStream& random) {
    switch (lengths.kind) {
        case LengthDistribution::Kind::kConstant:
            return static_cast<double>(lengths.value);
        case LengthDistribution::Kind::kLogNormal:
            return random.log_normal(lengths.median, lengths.sigma);
        case LengthDistribution::Kind::kEmpirical:
            KVSIM_CHECK(!lengths.quantile_tokens.empty(), "an empirical distribution needs quantiles");
            return empirical_quantile(lengths.quantile_tokens, random.uniform());
    }
    KVSIM_CHECK(false, "length distribution {}", static_cast<int>(lengths.kind));
}

std::int64_t draw_tokens(const LengthDistribution& lengths, RandomStream& random, std::int64_t& clamped) {
    const double tokens = std::round(draw(lengths, random));
    const auto min = static_cast<double>(lengths.min);
    const auto max = static_cast<double>(lengths.max);
    clamped += tokens < min || tokens > max ? 1 : 0;
    return static_cast<std::int64_t>(std::clamp(tokens, min, max));
}

}  // namespace

ArrivalList generate(const SyntheticWorkload& workload, std::uint64_t seed) {
    KVSIM_CHECK(workload.rate.value() > 0.0 && workload.requests > 0, "rate {}/s, {} requests",
                workload.rate.value(), workload.requests);
    RandomStream gaps(seed, "arrivals");
    RandomStream prompts(seed, "prompt");
    RandomStream outputs(seed, "output");
    ArrivalList list;
    list.rows_read = workload.requests;
    list.arrivals.reserve(static_cast<std::size_t>(workload.requests));
    const double end = to_seconds(Time(std::numeric_limits<std::int64_t>::max()));
    Time now;
    for (std::int64_t i = 0; i < workload.requests; ++i) {
        const double gap = gaps.exponential(1.0 / workload.rate.value());
        if (to_seconds(now) + gap > 0.99 * end) {
            throw_mistake({}, "workload.rate",
                          "expected arrivals within 105 days, the range of simulated time; "
                          "raise the rate or ask for fewer requests");
        }
        now += time_from_seconds(gap);
        const std::int64_t prompt = draw_tokens(workload.prompt, prompts, list.clamped);
        const std::int64_t output = draw_tokens(workload.output, outputs, list.clamped);
        list.arrivals.push_back({now, prompt, output});
    }
    return list;
}

}  // namespace kvsim
