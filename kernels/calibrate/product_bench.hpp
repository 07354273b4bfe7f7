// A round of matrix products with operands in device memory, and their comparison with sums on the CPU.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/products.hpp"
#include "kernels/calibrate/row_check.hpp"

namespace kvsim::calibrate {

// Every product has weights of its own; activations are shared by those of equal m and k, and all write to
// one output.
class ProductBench {
  public:
    // Operands are filled on `stream`; waits.
    ProductBench(std::span<const Product> round, OperandData data, std::uint64_t seed, cudaStream_t stream);

    // Product `number` of the endless repetition of the round.
    void enqueue(std::size_t number, cudaStream_t stream) const;

    // Outputs of every product at places spread over the matrix, poisoned before. Waits.
    Verification verify(cudaStream_t stream) const;

  private:
    using Bf16Array = DeviceArray<std::uint16_t>;  // bit patterns

    const Bf16Array& activations(const Product& p) const { return activations_.at({p.m, p.k}); }

    std::vector<Product> round_;
    ProductRunner runner_;
    std::map<std::pair<int, int>, Bf16Array> activations_;  // by m and k
    std::vector<Bf16Array> weights_;
    Bf16Array output_;
};

}  // namespace kvsim::calibrate
