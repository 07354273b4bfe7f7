// Speculation policies: how many drafts are verified per step; and how many of them are kept.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sim/memory/serving_spec.hpp"

namespace kvsim {

// No engine verifies as many.
inline constexpr int kMostDrafts = 64;

// Drafts kept of those proposed, as a distribution. Draft i is kept with rate_i 2^(-context / half_context)
// if those before it were; context: tokens in the KV cache when the step begins.
class Acceptance {
  public:
    // Throws ConfigError: at least one rate, all of them in [0, 1]; half_context > 0.
    explicit Acceptance(const AcceptanceSpec& spec);

    // Expected drafts kept of k at a context: sum over i of the product of the first i rates. Leviathan et
    // al. (2023), eq. 1, without the bonus token.
    double expected(int drafts, std::int64_t context) const;
    // A uniform number of 31 bits decides, so that many draws fit into vector instructions: a chance is exact
    // within 2^-31, and those of 0 and 1 are exact.
    static constexpr std::int32_t uniform(std::uint64_t bits) {
        return static_cast<std::int32_t>(bits >> 33);
    }
    // Drafts kept of k. The same number keeps as many of k + 1 drafts as of k, or one more. drafts <=
    // kMostDrafts.
    int draw(int drafts, std::int64_t context, std::int32_t uniform) const;

    // The same for many rows, column by column: more than i drafts are kept if
    //   uniform <= limits()[i]                                       where nothing decays,
    //   uniform < int(products()[i] decay(context)^(i + 1))        where rates do, powers by
    //   multiplication.
    bool decays() const { return decays_; }
    std::span<const std::int32_t> limits() const { return limits_; }
    std::span<const float> products() const { return products_; }
    // 2^(-context / half_context), context >= 0, within 5e-6; a power of two times the series of 2^x at 0,
    // |x| <= 1/2, because that fits into vector instructions.
    float decay(std::int32_t context) const {
        const float x = static_cast<float>(std::min(context, far_)) * exponent_per_token_;
        const auto whole = static_cast<std::int32_t>(x - 0.5F);
        const float y = (x - static_cast<float>(whole)) * 0.69314718F;  // ln 2
        const float series =
            1.0F + y * (1.0F + y * (1 / 2.0F + y * (1 / 6.0F + y * (1 / 24.0F + y * (1 / 120.0F)))));
        return std::bit_cast<float>(std::bit_cast<std::int32_t>(series) + whole * (1 << 23));
    }

  private:
    double rate(int draft) const {
        return rates_[std::min(static_cast<std::size_t>(draft), rates_.size() - 1)];
    }

    std::vector<double> rates_;
    std::array<std::int32_t, kMostDrafts> limits_{};
    std::array<float, kMostDrafts> products_{};  // 2^31 times the product of the first i + 1 rates
    bool decays_ = false;
    float exponent_per_token_ = 0.0F;  // -1 / half_context
    std::int32_t far_ = 0;             // a context beyond which no draft is ever kept
};

// What a policy may ask: the time of a decode step of `rows` rows at a mean context that verifies `drafts`
// per row, drafting included.
class StepTimes {
  public:
    virtual ~StepTimes() = default;
    virtual Time step_time(std::int64_t rows, std::int64_t context, int drafts) const = 0;
};

class SpeculationPolicy {
  public:
    virtual ~SpeculationPolicy() = default;
    // Drafts to propose for each of `rows` rows, which the next step verifies; in [0, spec.most_drafts()].
    virtual int drafts(std::int64_t rows, std::int64_t mean_context) = 0;
};

struct SpeculationPolicyEntry {
    std::string_view name;
    std::string_view help;
    // Throws ConfigError when the spec lacks what the policy needs. `times` outlives the policy.
    std::unique_ptr<SpeculationPolicy> (*make)(const SpeculationSpec& spec, const StepTimes& times);
};

// Every speculation policy, the default first.
std::span<const SpeculationPolicyEntry> speculation_policies();

// The policy that `spec` names. Throws ConfigError, naming the choices when it is not in the table.
std::unique_ptr<SpeculationPolicy> make_speculation_policy(const SpeculationSpec& spec,
                                                           const StepTimes& times);

// The entries of the table.
std::unique_ptr<SpeculationPolicy> make_no_speculation(const SpeculationSpec& spec, const StepTimes& times);
std::unique_ptr<SpeculationPolicy> make_static_speculation(const SpeculationSpec& spec,
                                                           const StepTimes& times);
std::unique_ptr<SpeculationPolicy> make_table_speculation(const SpeculationSpec& spec,
                                                          const StepTimes& times);
std::unique_ptr<SpeculationPolicy> make_goodput_speculation(const SpeculationSpec& spec,
                                                            const StepTimes& times);

}  // namespace kvsim
