// Checked CUDA runtime calls and owners of CUDA resources.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace kvsim::calibrate {

// A CUDA call that failed: place, call and CUDA's own words. `code` tells what it was.
class CudaError : public std::runtime_error {
  public:
    CudaError(cudaError_t error, const char* call, const char* file, int line);
    const cudaError_t code;
};

inline void cuda_check(cudaError_t error, const char* call, const char* file, int line) {
    if (error != cudaSuccess) throw CudaError(error, call, file, line);
}
#define KVSIM_CUDA_CALL(call) ::kvsim::calibrate::cuda_check((call), #call, __FILE__, __LINE__)

// Owns a handle that `destroy` frees. Destruction ignores errors: there is nobody left to tell.
template <class Handle, auto Destroy>
class CudaHandle {
  public:
    CudaHandle() = default;
    explicit CudaHandle(Handle handle) : handle_(handle) {}
    CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    CudaHandle& operator=(CudaHandle&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~CudaHandle() {
        if (handle_ != nullptr) Destroy(handle_);
    }
    Handle get() const { return handle_; }

  private:
    Handle handle_ = nullptr;
};

using Stream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using Event = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using Graph = CudaHandle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

// Waits for, and is waited for by, plain cudaMemcpy and cudaMemset.
Stream make_stream();
Event make_event();

// Device memory of a fixed number of elements; uninitialised.
template <class T>
class DeviceArray {
  public:
    DeviceArray() = default;
    explicit DeviceArray(std::size_t size) : size_(size) {
        void* memory = nullptr;
        KVSIM_CUDA_CALL(cudaMalloc(&memory, size * sizeof(T)));
        memory_ = Memory(memory);
    }
    explicit DeviceArray(std::span<const T> host) : DeviceArray(host.size()) {
        KVSIM_CUDA_CALL(cudaMemcpy(data(), host.data(), host.size_bytes(), cudaMemcpyHostToDevice));
    }
    T* data() const { return static_cast<T*>(memory_.get()); }
    std::size_t size() const { return size_; }
    std::size_t bytes() const { return size_ * sizeof(T); }

    // Copies elements [first, first + out.size()) to the host; waits.
    void download(std::size_t first, std::span<T> out) const {
        KVSIM_CUDA_CALL(cudaMemcpy(out.data(), data() + first, out.size_bytes(), cudaMemcpyDeviceToHost));
    }

  private:
    using Memory = CudaHandle<void*, cudaFree>;
    Memory memory_;
    std::size_t size_ = 0;
};

// Repeats `pattern` over the whole of `target` (the last repetition may be cut): doubling copies on the
// device.
void tile(void* target, std::size_t target_bytes, const void* pattern, std::size_t pattern_bytes,
          cudaStream_t stream);

template <class T>
void tile(const DeviceArray<T>& target, const DeviceArray<T>& pattern, cudaStream_t stream) {
    tile(target.data(), target.bytes(), pattern.data(), pattern.bytes(), stream);
}

}  // namespace kvsim::calibrate
