// Buffered decode and verification by short blocks.
#pragma once

#include "kernels/launch.hpp"
#include "kernels/linear_dispatch.hpp"

namespace kvsim {

// launch_linear_buffered for bf16 records and short rings, by many short blocks instead of a pipeline.
// cudaErrorInvalidValue for anything else.
cudaError_t launch_linear_buffered_small(const LinearParams& params, cudaStream_t stream);

// The same of launch_linear_verify_buffered, for compute capability 8.0 and up.
cudaError_t launch_linear_verify_buffered_small(const LinearParams& params, cudaStream_t stream);

}  // namespace kvsim
