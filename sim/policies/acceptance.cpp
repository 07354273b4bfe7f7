#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/policies/speculation.hpp"

namespace kvsim {
namespace {

constexpr double kTwoTo31 = 0x1p31;
constexpr float kLargestFloat = 0x1.fffffep30F;  // that fits into 32 bits

std::int32_t context_of(std::int64_t context) {
    KVSIM_CHECK(context >= 0 && context <= std::numeric_limits<std::int32_t>::max(), "context {}", context);
    return static_cast<std::int32_t>(context);
}

void check(const AcceptanceSpec& spec) {
    std::vector<Mistake> mistakes;
    const auto add = [&](std::string field, std::string message) {
        mistakes.push_back({Place{}, "speculation.acceptance." + std::move(field), std::move(message)});
    };
    if (spec.rates.empty()) add("rates", "expected at least one rate, got none");
    for (const double rate : spec.rates) {
        if (!(rate >= 0.0 && rate <= 1.0))
            add("rates", fmt::format("expected a rate from 0 to 1, got {}", rate));
    }
    if (spec.half_context && !(*spec.half_context >= 1.0 && *spec.half_context <= 1e9))
        add("half_context", fmt::format("expected 1 to 1e9 tokens, got {}", *spec.half_context));
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
}

}  // namespace

Acceptance::Acceptance(const AcceptanceSpec& spec) : rates_(spec.rates), decays_(spec.half_context) {
    check(spec);
    double product = kTwoTo31;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        product *= rate(static_cast<int>(i));
        limits_[i] = static_cast<std::int32_t>(std::ceil(product) - 1.0);
        products_[i] = std::min(static_cast<float>(product), kLargestFloat);
    }
    if (!decays_) return;
    exponent_per_token_ = static_cast<float>(-1.0 / *spec.half_context);
    constexpr double kHalvings = 100.0;  // within the range of float
    far_ = static_cast<std::int32_t>(
        std::min<double>(*spec.half_context * kHalvings, std::numeric_limits<std::int32_t>::max()));
}

double Acceptance::expected(int drafts, std::int64_t context) const {
    const double d = decay(context_of(context));
    double chance = 1.0;
    double sum = 0.0;
    for (int i = 0; i < drafts; ++i) {
        chance *= rate(i) * d;
        sum += chance;
    }
    return sum;
}

int Acceptance::draw(int drafts, std::int64_t context, std::int32_t uniform) const {
    KVSIM_CHECK(drafts <= kMostDrafts, "{} drafts", drafts);
    const float d = decay(context_of(context));
    float power = 1.0F;
    int kept = 0;
    for (; kept < drafts; ++kept) {
        const auto i = static_cast<std::size_t>(kept);
        power *= d;
        const bool keep =
            decays_ ? uniform < static_cast<std::int32_t>(products_[i] * power) : uniform <= limits_[i];
        if (!keep) break;
    }
    return kept;
}

}  // namespace kvsim
