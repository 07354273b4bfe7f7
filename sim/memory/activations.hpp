// What a forward pass needs beside weights and caches.
#pragma once

#include <cstdint>

#include "sim/base/units.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

// Estimate of the largest live set of tensors: of a step of `tokens` tokens either the residual stream, its
// norm and the inputs and outputs of the widest sublayer, in bf16, or the logits of `logit_rows` rows, in
// bf16 and fp32. `rank` is the model as one rank holds it. Allocators and workspaces come on top: published
// totals are not available to test against.
Bytes activation_bytes(const ModelSpec& rank, std::int64_t tokens, std::int64_t logit_rows);

}  // namespace kvsim
