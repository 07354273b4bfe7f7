// A device allocation that frees itself, for tests.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvsim {

inline void require_cuda(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

template <class T>
class DeviceArray {
  public:
    // Every byte is 0xff: a NaN in every float format, so that unwritten data shows.
    explicit DeviceArray(std::size_t size) : size_(size) {
        if (size == 0) return;
        void* memory = nullptr;
        require_cuda(cudaMalloc(&memory, size * sizeof(T)));
        data_ = static_cast<T*>(memory);
        require_cuda(cudaMemset(data_, 0xff, size * sizeof(T)));
    }
    explicit DeviceArray(std::span<const T> host) : DeviceArray(host.size()) { upload(0, host); }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    // Null when empty.
    T* data() const { return data_; }
    std::size_t size() const { return size_; }

    // Elements [first, first + host.size()).
    void upload(std::size_t first, std::span<const T> host) {
        if (host.empty()) return;
        require_cuda(cudaMemcpy(data_ + first, host.data(), host.size_bytes(), cudaMemcpyHostToDevice));
    }
    std::vector<T> download(std::size_t first, std::size_t count) const {
        std::vector<T> host(count);
        if (count > 0)
            require_cuda(cudaMemcpy(host.data(), data_ + first, count * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace kvsim
