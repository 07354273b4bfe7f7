// A device allocation that frees itself, for tests.
#pragma once

#include <cuda_runtime.h>

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
    explicit DeviceArray(std::size_t size) : size_(size) {
        require_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)));
        require_cuda(
            cudaMemset(data_, 0xff, size * sizeof(T)));  // NaN in every float format: unwritten data shows
    }
    explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) { upload(host); }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* data() { return data_; }
    void upload(const std::vector<T>& host) {
        require_cuda(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> download() const {
        std::vector<T> host(size_);
        require_cuda(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace kvsim
