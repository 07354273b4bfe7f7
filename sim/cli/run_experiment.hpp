// One run and what became of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/config/experiment.hpp"
#include "sim/results/run_result.hpp"

namespace kvsim {

enum class RunStatus : std::uint8_t { kOk, kInfeasible, kFailed };
inline constexpr std::array<std::string_view, 3> kRunStatusNames{"ok", "infeasible", "failed"};

struct RunOutcome {
    RunStatus status = RunStatus::kOk;
    std::string reason;               // of a run without a result, one line
    std::string key;                  // of the experiment, to blame when infeasible: model or workload.batch
    std::optional<RunResult> result;  // when ok
};

// Infeasible: a steady batch, or any request at all, does not fit the device; the reason names the limit.
// Failed: a fault of ours. Throws ConfigError for bad input that only a run can find, such as a broken trace.
RunOutcome run_experiment(const Experiment& experiment);

}  // namespace kvsim
