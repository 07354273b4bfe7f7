#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/check.hpp"
#include "sim/workload/synthetic.hpp"

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

RequestDraws::RequestDraws(const SyntheticWorkload& workload, std::uint64_t seed)
    : workload_(workload), gaps_(seed, "arrivals"), prompts_(seed, "prompt"), outputs_(seed, "output") {}

Time RequestDraws::next_time() {
    const double mean = 1.0 / workload_.rate.value();
    const double gap =
        workload_.burstiness == 1.0 ? gaps_.exponential(mean) : gaps_.gamma(workload_.burstiness, mean);
    constexpr double kEnd = 0.99 * static_cast<double>(std::numeric_limits<std::int64_t>::max());
    if (to_seconds(now_) + gap > kEnd / kPicosecondsPerSecond) {
        throw_mistake({}, "workload.rate",
                      "expected arrivals within 105 days, the range of simulated time; "
                      "raise the rate or ask for fewer requests");
    }
    now_ += time_from_seconds(gap);
    return now_;
}

Arrival RequestDraws::request(Time time) {
    Arrival arrival{time, draw_tokens(workload_.prompt, prompts_, clamped_),
                    draw_tokens(workload_.output, outputs_, clamped_)};
    declare(arrival, workload_.declared, clamped_);
    return arrival;
}

void declare(Arrival& arrival, std::int64_t declared, std::int64_t& clamped) {
    if (declared == 0) return;
    arrival.declared_tokens = declared;
    if (arrival.output_tokens <= declared) return;
    arrival.output_tokens = declared;
    ++clamped;
}

ArrivalList generate(const SyntheticWorkload& workload, std::uint64_t seed) {
    KVSIM_CHECK(workload.rate.value() > 0.0 && workload.requests > 0 && workload.concurrency == 0,
                "rate {}/s, {} requests, {} of a closed loop", workload.rate.value(), workload.requests,
                workload.concurrency);
    RequestDraws draws(workload, seed);
    ArrivalList list;
    list.rows_read = workload.requests;
    list.arrivals.reserve(static_cast<std::size_t>(workload.requests));
    for (std::int64_t i = 0; i < workload.requests; ++i)
        list.arrivals.push_back(draws.request(draws.next_time()));
    list.clamped = draws.clamped();
    return list;
}

}  // namespace kvsim
