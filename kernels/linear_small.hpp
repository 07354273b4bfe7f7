// Buffered decode of small batches.
#pragma once

#include "kernels/launch.hpp"
#include "kernels/linear_dispatch.hpp"

namespace kvsim {

// launch_linear_buffered for fp32 states, bf16 records and short rings, by short blocks of their own instead of
// a pipeline: sooner done where a launch has too few rows to fill one. cudaErrorInvalidValue for anything else.
cudaError_t launch_linear_buffered_small(const LinearParams& params, cudaStream_t stream);

}  // namespace kvsim
