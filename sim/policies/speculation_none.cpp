#include "sim/policies/speculation.hpp"

namespace kvsim {
namespace {

class NoSpeculation final : public SpeculationPolicy {
  public:
    int drafts(std::int64_t /*rows*/, std::int64_t /*mean_context*/) override { return 0; }
};

}  // namespace

std::unique_ptr<SpeculationPolicy> make_no_speculation(const SpeculationSpec&, const StepTimes&) {
    return std::make_unique<NoSpeculation>();
}

}  // namespace kvsim
