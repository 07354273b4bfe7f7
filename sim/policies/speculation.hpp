// Speculation policies: how many drafts are verified per step; and how many of them are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sim/memory/serving_spec.hpp"

namespace kvsim {

// Drafts kept of those proposed, as a distribution.
class Acceptance {
  public:
    explicit Acceptance(const AcceptanceSpec& spec);

    // Expected drafts kept of k at a context: sum over i of the product of the first i rates. Leviathan et al.
    // (2023), eq. 1, without the bonus token.
    double expected(int drafts, std::int64_t context) const;
    // Drafts kept of k, from 64 uniform random bits.
    int draw(int drafts, std::int64_t context, std::uint64_t bits) const;

  private:
    AcceptanceSpec spec_;
};

// What a policy may ask: the time of a decode step of `rows` rows at a mean context that verifies `drafts` per
// row, drafting included.
class StepTimes {
  public:
    virtual ~StepTimes() = default;
    virtual Time step_time(std::int64_t rows, std::int64_t context, int drafts) const = 0;
};

class SpeculationPolicy {
  public:
    virtual ~SpeculationPolicy() = default;
    // k for a step of `rows` rows, >= 0.
    virtual int drafts(std::int64_t rows, std::int64_t mean_context) = 0;
};

struct SpeculationPolicyEntry {
    std::string_view name;
    std::string_view help;
    // `times` outlives the policy.
    std::unique_ptr<SpeculationPolicy> (*make)(const SpeculationSpec& spec, const StepTimes& times);
};

std::span<const SpeculationPolicyEntry> speculation_policies();

}  // namespace kvsim
