// Matrix products by cuBLASLt: what PyTorch, and so serving engines, call for bf16 projections.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <string>

#include "kernels/calibrate/sustained_plan.hpp"

namespace kvsim::calibrate {

// Device memory of one product, row by row, bf16: activations [m, k], weights [n, k], output [m, n].
struct ProductOperands {
    const void* activations = nullptr;
    const void* weights = nullptr;
    void* output = nullptr;
};

// Version of cuBLASLt. Throws std::runtime_error when kvcalib was built without it.
std::string products_library();

// Algorithms for a round of products: the first that the heuristic names, with a workspace of 32 MB.
// Throws std::runtime_error when cuBLASLt fails, or was missing when kvcalib was built.
class ProductRunner {
  public:
    explicit ProductRunner(std::span<const Product> round);
    ~ProductRunner();
    ProductRunner(const ProductRunner&) = delete;
    ProductRunner& operator=(const ProductRunner&) = delete;

    // Product `index` of the round. One stream at a time: products share the workspace.
    void enqueue(std::size_t index, const ProductOperands& operands, cudaStream_t stream) const;

  private:
    struct Library;
    std::unique_ptr<Library> library_;
};

}  // namespace kvsim::calibrate
