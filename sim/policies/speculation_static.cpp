#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/policies/speculation.hpp"

namespace kvsim {
namespace {

class StaticSpeculation final : public SpeculationPolicy {
  public:
    explicit StaticSpeculation(int drafts) : drafts_(drafts) {}

    int drafts(std::int64_t /*rows*/, std::int64_t /*mean_context*/) override { return drafts_; }

  private:
    int drafts_;
};

}  // namespace

std::unique_ptr<SpeculationPolicy> make_static_speculation(const SpeculationSpec& spec, const StepTimes&) {
    if (spec.drafts < 0)
        throw_mistake({}, "speculation.drafts", fmt::format("expected 0 or more, got {}", spec.drafts));
    return std::make_unique<StaticSpeculation>(spec.drafts);
}

}  // namespace kvsim
