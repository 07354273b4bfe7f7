#include <fmt/format.h>

#include <bit>

#include "sim/base/check.hpp"
#include "sim/base/error.hpp"
#include "sim/policies/speculation.hpp"

namespace kvsim {
namespace {

// Contexts that are taken for one: those which agree in their leading three bits, so within an eighth of
// their middle.
constexpr int kLeadingBits = 3;
constexpr std::size_t kContexts = 256;  // below 2^34 tokens

std::size_t context_class(std::uint64_t context) {
    const int dropped = std::max(0, static_cast<int>(std::bit_width(context)) - kLeadingBits);
    return (static_cast<std::size_t>(dropped) << kLeadingBits) + (context >> dropped);
}
std::int64_t middle(std::uint64_t context) {
    const int dropped = std::max(0, static_cast<int>(std::bit_width(context)) - kLeadingBits);
    const std::uint64_t first = context >> dropped << dropped;
    return static_cast<std::int64_t>(first + ((std::uint64_t{1} << dropped) >> 1));
}

// Knows the true acceptance rates, which an engine would estimate. A choice is made once per number of rows
// and class of contexts, and looked up afterwards.
class GoodputSpeculation final : public SpeculationPolicy {
  public:
    GoodputSpeculation(const SpeculationSpec& spec, const StepTimes& times)
        : acceptance_(spec.acceptance), most_(spec.drafts), times_(times) {}

    int drafts(std::int64_t rows, std::int64_t mean_context) override {
        const auto context = static_cast<std::uint64_t>(mean_context);
        const std::size_t of_context = context_class(context);
        KVSIM_CHECK(rows > 0 && mean_context >= 0 && of_context < kContexts, "{} rows at context {}", rows,
                    mean_context);
        const std::size_t at = static_cast<std::size_t>(rows) * kContexts + of_context;
        if (at >= chosen_.size()) chosen_.resize((static_cast<std::size_t>(rows) + 1) * kContexts, kUnknown);
        if (chosen_[at] == kUnknown) chosen_[at] = static_cast<std::int8_t>(choose(rows, middle(context)));
        return chosen_[at];
    }

  private:
    static constexpr std::int8_t kUnknown = -1;

    // Of equals the fewest drafts.
    int choose(std::int64_t rows, std::int64_t context) const {
        int best = 0;
        double best_rate = 0.0;
        for (int k = 0; k <= most_; ++k) {
            const double tokens = 1.0 + acceptance_.expected(k, context);
            const double rate = tokens / to_seconds(times_.step_time(rows, context, k));
            if (rate <= best_rate) continue;
            best = k;
            best_rate = rate;
        }
        return best;
    }

    Acceptance acceptance_;
    int most_;
    const StepTimes& times_;
    std::vector<std::int8_t> chosen_;
};

}  // namespace

std::unique_ptr<SpeculationPolicy> make_goodput_speculation(const SpeculationSpec& spec,
                                                            const StepTimes& times) {
    if (spec.drafts < 1)
        throw_mistake({}, "speculation.drafts", fmt::format("expected 1 or more, got {}", spec.drafts));
    return std::make_unique<GoodputSpeculation>(spec, times);
}

}  // namespace kvsim
