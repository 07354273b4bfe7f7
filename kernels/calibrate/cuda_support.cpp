#include "kernels/calibrate/cuda_support.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvsim::calibrate {

CudaError::CudaError(cudaError_t error, const char* call, const char* file, int line)
    : std::runtime_error(fmt::format("{}:{}: {}: {} ({})", file, line, call, cudaGetErrorName(error),
                                     cudaGetErrorString(error))),
      code(error) {}

Stream make_stream() {
    cudaStream_t stream = nullptr;
    KVSIM_CUDA_CALL(cudaStreamCreate(&stream));
    return Stream(stream);
}

Event make_event() {
    cudaEvent_t event = nullptr;
    KVSIM_CUDA_CALL(cudaEventCreate(&event));
    return Event(event);
}

void tile(void* target, std::size_t target_bytes, const void* pattern, std::size_t pattern_bytes,
          cudaStream_t stream) {
    auto* const bytes = static_cast<char*>(target);
    std::size_t done = std::min(pattern_bytes, target_bytes);
    KVSIM_CUDA_CALL(cudaMemcpyAsync(bytes, pattern, done, cudaMemcpyDeviceToDevice, stream));
    while (done < target_bytes) {
        const std::size_t step = std::min(done, target_bytes - done);
        KVSIM_CUDA_CALL(cudaMemcpyAsync(bytes + done, bytes, step, cudaMemcpyDeviceToDevice, stream));
        done += step;
    }
}

}  // namespace kvsim::calibrate
