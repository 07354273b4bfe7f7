// How an engine runs a step: what it fuses, what it overlaps, and what it spends between kernels. Part of an
// engine file (configs/engines). Nothing else in the cost model knows an engine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"

namespace kvsim {

// Kernels that an engine has where another runs several, by the operators that become one.
enum class Fusion : std::uint8_t {
    kQkNormRope,     // gated attention: norm of q and k, RoPE and the copy of the gate
    kAttentionGate,  // gated attention: sigmoid and product
    kSharedGate,     // product with the gate's weights, sigmoid, scale and sum of shared and routed experts
    kAllReduceNorm,  // all-reduce, residual add and the next norm
    kMergedProjection,  // both projections of a linear layer
    kProjectionViews,   // no copy of q, k, v, z: the next kernels take strides
    kSplitConv,         // that copy inside the convolution of the decode step
    kStateIndex,        // verification: an accepted state is chosen by its block index, not copied
    kDraftRows          // drafting: logits of one row per sequence, where others make those of every token
};
inline constexpr int kFusionCount = 9;
inline constexpr std::array<std::string_view, kFusionCount> kFusionNames{
    "qk_norm_rope",     "attention_gate", "shared_gate", "all_reduce_norm", "merged_projection",
    "projection_views", "split_conv",     "state_index", "draft_rows"};

// Operators that run beside others on a second stream.
enum class Overlap : std::uint8_t {
    kGateProjection,  // in_proj_ba beside in_proj_qkvz
    kSharedExperts,   // shared experts beside the routed ones
    kMixers           // attention beside the linear mixer of the same layer
};
inline constexpr int kOverlapCount = 3;
inline constexpr std::array<std::string_view, kOverlapCount> kOverlapNames{"gate_projection",
                                                                           "shared_experts", "mixers"};

enum class Sampling : std::uint8_t { kGreedy, kSampled };
inline constexpr std::array<std::string_view, 2> kSamplingNames{"greedy", "sampled"};

// Whose decode kernels of linear attention: ours (profiles/<gpu>/fit.yaml) or published ones
// (public_kernels.yaml).
enum class LinearKernels : std::uint8_t { kOwn, kPublished };
inline constexpr std::array<std::string_view, 2> kLinearKernelsNames{"own", "published"};

struct EngineSteps {
    // A node of a CUDA graph beyond the kernel's own duration. Added to operators whose time is a duration
    // (element-wise kernels); tables and profiles give times per node.
    Time launch_gap;
    Time host_gap;  // between two steps
    std::array<bool, kFusionCount> fused{};
    std::array<bool, kOverlapCount> overlapped{};
    std::int64_t overlap_tokens = 0;  // largest step that uses the second stream
    Sampling sampling = Sampling::kGreedy;
    LinearKernels linear_kernels = LinearKernels::kOwn;
    // What the engine's code for a model does not fuse, though it does for others.
    std::vector<std::pair<std::string, std::vector<Fusion>>> unfused;

    bool has(Fusion f) const { return fused[static_cast<std::size_t>(f)]; }
    bool has(Overlap o) const { return overlapped[static_cast<std::size_t>(o)]; }

    // As it serves that model.
    EngineSteps serving(std::string_view model) const {
        EngineSteps steps = *this;
        for (const auto& [name, fusions] : unfused) {
            if (name != model) continue;
            for (const Fusion f : fusions) steps.fused[static_cast<std::size_t>(f)] = false;
        }
        return steps;
    }

    bool operator==(const EngineSteps&) const = default;
};

}  // namespace kvsim
