#include <fmt/format.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/policies/speculation.hpp"

namespace kvsim {
namespace {

class TableSpeculation final : public SpeculationPolicy {
  public:
    explicit TableSpeculation(const SpeculationSpec& spec) : table_(spec.table) {}

    int drafts(std::int64_t rows, std::int64_t /*mean_context*/) override {
        const auto beyond =
            std::upper_bound(table_.begin(), table_.end(), rows,
                             [](std::int64_t n, const auto& entry) { return n < entry.first; });
        return std::prev(beyond)->second;  // the first entry is for one row
    }

  private:
    std::vector<std::pair<std::int64_t, int>> table_;
};

}  // namespace

std::unique_ptr<SpeculationPolicy> make_table_speculation(const SpeculationSpec& spec, const StepTimes&) {
    std::vector<Mistake> mistakes;
    const auto add = [&](std::string message) {
        mistakes.push_back({Place{}, "speculation.table", std::move(message)});
    };
    if (spec.table.empty() || spec.table.front().first != 1) add("expected a first entry for 1 row");
    for (std::size_t i = 0; i < spec.table.size(); ++i) {
        const auto& [batch, drafts] = spec.table[i];
        if (i > 0 && batch <= spec.table[i - 1].first)
            add(fmt::format("expected ascending numbers of rows, got {} after {}", batch,
                            spec.table[i - 1].first));
        if (drafts < 0) add(fmt::format("expected 0 drafts or more, got {}", drafts));
    }
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
    return std::make_unique<TableSpeculation>(spec);
}

}  // namespace kvsim
