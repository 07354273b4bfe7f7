// What the tests of step prices share: a device, step shapes, sums.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "sim/cost/step_cost.hpp"
#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/models.hpp"

namespace kvsim::testing {

// NVIDIA H200 SXM, data sheet.
inline DeviceSpec h200() {
    DeviceSpec d;
    d.name = "h200";
    d.peak_bandwidth = Bandwidth(4.8e12);
    d.peak_bf16 = FlopRate(989.4e12);
    d.peak_fp8 = FlopRate(1978.9e12);
    d.link_bandwidth = Bandwidth(450e9);
    d.compute_capability = 9.0;
    d.l2 = Bytes(60 << 20);
    d.sm_count = 132;
    return d;
}

inline const ProfileFit& synthetic_fit() {
    static const ProfileFit fit = fit_profile(synthetic_profile());
    return fit;
}

// SGLang's fusions, one stream, nothing between kernels.
inline EngineSteps plain_engine() {
    EngineSteps e;
    for (const Fusion f :
         {Fusion::kQkNormRope, Fusion::kAttentionGate, Fusion::kSharedGate, Fusion::kAllReduceNorm})
        e.fused[static_cast<std::size_t>(f)] = true;
    return e;
}

// Everything but the decode kernels of linear attention on the roofline.
inline StepCost step_cost(const ModelSpec& model, const EngineSteps& engine = plain_engine(),
                          Parallelism p = {}, StateFormat state = StateFormat::kFp32) {
    return StepCost({model, p, engine, state, FittedOperators(h200()), {synthetic_fit(), false}});
}

inline StepShape decode(Form form, std::int64_t batch, std::int64_t context, std::int64_t records = 0,
                        std::int64_t flushes = 0) {
    StepShape s;
    // Rows that flush hold the mean number of records, and fold their new token too.
    s[form] = {batch, batch, records, flushes, flushes * (records / batch + 1)};
    s.decode = {batch, batch * context, context};
    s.logit_rows = batch;
    return s;
}

inline StepShape prefill(std::int64_t sequences, std::int64_t tokens_each, std::int64_t cached_each = 0) {
    StepShape s;
    s.prefill = {sequences, sequences * tokens_each, sequences * cached_each,
                 sequences * (tokens_each * cached_each + tokens_each * (tokens_each + 1) / 2)};
    s.logit_rows = sequences;
    return s;
}

inline std::int64_t owned(const ByteLedger& bytes, Owner owner) {
    return bytes[static_cast<std::size_t>(owner)].value();
}

inline std::int64_t total(const ByteLedger& bytes) {
    std::int64_t sum = 0;
    for (const Bytes b : bytes) sum += b.value();
    return sum;
}

inline const OperatorCost* lookup(const std::vector<OperatorCost>& list, std::string_view name) {
    for (const OperatorCost& op : list) {
        if (op.name == name) return &op;
    }
    return nullptr;
}
inline const OperatorCost& find(const std::vector<OperatorCost>& list, std::string_view name) {
    const OperatorCost* found = lookup(list, name);
    if (found == nullptr) FAIL("no operator " << name);
    return *found;
}
inline bool has(const std::vector<OperatorCost>& list, std::string_view name) {
    return lookup(list, name) != nullptr;
}

inline std::int64_t launches(const std::vector<OperatorCost>& list) {
    std::int64_t sum = 0;
    for (const OperatorCost& op : list) sum += op.launches;
    return sum;
}

}  // namespace kvsim::testing
