// Small models and devices whose bytes can be counted by hand.
#pragma once

#include "sim/cost/device.hpp"
#include "sim/model/model.hpp"
#include "tests/support/models.hpp"

namespace kvsim::testing {

inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

inline DeviceSpec device_with(std::int64_t memory) {
    DeviceSpec d;
    d.name = "test device";
    d.memory = Bytes(memory);
    return d;
}

// One linear layer (state 1 x 32 x 32 x 4 = 4,096 B, convolution (2 x 32 + 32) x 3 x 2 = 576 B, a record 2 x
// 32 + 2 x 32 + 4 = 132 B) and one full-attention layer with 2 x 1 x 16 x 2 = 64 B per token.
inline ModelSpec tiny_model() {
    ModelSpec m;
    m.name = "tiny";
    m.hidden = 32;
    m.vocab = 64;
    m.tied_embeddings = true;
    const DenseFfn ffn{"ffn", 64};
    m.kinds = {{'L', LinearMixer{"linear", Family::kGdn, 1, 1, 32, 32, 4}, {}, ffn},
               {'F', {}, GqaMixer{"attention", 1, 1, 16, true, true, true}, ffn}};
    m.pattern = "LF";
    return m;
}
inline constexpr std::int64_t kTinySlot = 4'096 + 576;
inline constexpr std::int64_t kTinyKv = 64;

}  // namespace kvsim::testing
