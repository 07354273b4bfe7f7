// How requests are served, as values: what experiment and engine files say, and what policies are made from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"

namespace kvsim {

// ---- engine file, `scheduler:` ----

// prefill_first: a step is either prefill, which goes first, or decode (SGLang). mixed: every step decodes
// all rows and fills up its token budget with prefill (vLLM).
enum class StepRule : std::uint8_t { kPrefillFirst, kMixed };
inline constexpr std::array<std::string_view, 2> kStepRuleNames{"prefill_first", "mixed"};

enum class QueueOrder : std::uint8_t { kFirstCome, kShortestFirst };  // shortest prompt + declared answer
inline constexpr std::array<std::string_view, 2> kQueueOrderNames{"first_come", "shortest_first"};

// Who gives way when memory runs out.
enum class VictimRule : std::uint8_t { kFewestOutput, kLastAdmitted };
inline constexpr std::array<std::string_view, 2> kVictimRuleNames{"fewest_output", "last_admitted"};

// What admission sets aside of the KV pool for a request. declared: prompt and declared answer, so that
// nothing is ever preempted. estimated: the prompt, and for every running request new_token_ratio of the
// answer that is still to come (SGLang; the ratio decays while nothing is preempted). prompt: the prompt
// alone (vLLM).
enum class AdmissionRule : std::uint8_t { kDeclared, kEstimated, kPrompt };
inline constexpr std::array<std::string_view, 3> kAdmissionRuleNames{"declared", "estimated", "prompt"};

struct SchedulerSpec {
    StepRule steps = StepRule::kPrefillFirst;
    QueueOrder order = QueueOrder::kFirstCome;
    VictimRule victim = VictimRule::kFewestOutput;
    AdmissionRule admission = AdmissionRule::kDeclared;
    // estimated: ratio at first and after a preemption, its floor, decode steps from one to the other
    double new_token_ratio = 0.7;
    double least_token_ratio = 0.098;
    int ratio_steps = 600;
    double watermark = 0.0;  // share of the pool that admission leaves free
    bool operator==(const SchedulerSpec&) const = default;
};

// ---- engine file, `prefix_cache:`; without it every prompt is computed whole ----

// When a state is copied into the cache, for which a row with a buffer flushes: keys of `prefix_cache`.
struct SnapshotRule {
    std::string_view name;
    std::string_view help;
};
inline constexpr std::array<SnapshotRule, 2> kSnapshotRules{
    {{"snapshot_tokens", "at multiples of so many tokens, in prefill and decode"},
     {"at_preemption", "when a request gives way: it goes on from there, not from its first token"}}};

struct PrefixCacheSpec {
    int snapshot_tokens = 256;  // between snapshots of a state, rounded up to whole KV pages
    // Where pools are split: slots that a running request takes of those that are set aside for it. The
    // others hold snapshots.
    int slots_in_use = 1;
    // A request that gives way leaves a snapshot of all that it has computed, from which it goes on.
    bool at_preemption = false;
    bool operator==(const PrefixCacheSpec&) const = default;
};

// ---- experiment file ----

struct FlushSpec {                        // `linear.flush`
    std::string policy = "fixed_length";  // of flush_policies()
    int most_per_step = 0;  // deferred: rows that may flush in a step; 0: rows / buffer_length, rounded up
    bool operator==(const FlushSpec&) const = default;
};

struct AcceptanceSpec {  // `speculation.acceptance`
    // Chance that draft i is kept when those before it were; the last holds for all further ones. One entry:
    // geometric.
    std::vector<double> rates{};
    // Rates are multiplied by 2^(-context / half_context): drafts go wrong more often far from the start.
    std::optional<double> half_context{};
    bool operator==(const AcceptanceSpec&) const = default;
};

struct SpeculationSpec {          // `speculation`
    std::string policy = "none";  // of speculation_policies()
    int drafts = 0;               // static: k; goodput: the largest k
    // table: {smallest batch, k}, batches ascending from 1
    std::vector<std::pair<std::int64_t, int>> table{};
    AcceptanceSpec acceptance{};
    bool operator==(const SpeculationSpec&) const = default;

    int most_drafts() const {
        int most = policy == "none" ? 0 : drafts;
        for (const auto& [batch, k] : table) most = most > k ? most : k;
        return most;
    }
};

enum class RouterRule : std::uint8_t { kRoundRobin, kLeastLoaded };  // fewest requests in the system
inline constexpr std::array<std::string_view, 2> kRouterRuleNames{"round_robin", "least_loaded"};

struct SloSpec {  // a request that misses one of them does not count as goodput
    std::optional<Time> ttft, tpot, e2e;
    bool operator==(const SloSpec&) const = default;
};

// Test configuration: one request at a time on each replica, for a constant or exponential time, whatever the
// model. M/D/1, M/M/1 and M/M/k.
struct ServiceSpec {
    enum class Kind : std::uint8_t { kConstant, kExponential };
    Kind kind = Kind::kConstant;
    Time mean;
    bool operator==(const ServiceSpec&) const = default;
};

struct ServingSpec {
    SpeculationSpec speculation;
    int replicas = 1;
    RouterRule router = RouterRule::kRoundRobin;
    SloSpec slo;
    Time warmup;  // requests that arrive before it are left out of the percentiles
    std::optional<ServiceSpec> service;
    bool operator==(const ServingSpec&) const = default;
};

}  // namespace kvsim
