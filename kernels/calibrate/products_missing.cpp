// In place of products.cpp where CMake found no cuBLASLt.
#include <stdexcept>

#include "kernels/calibrate/products.hpp"

namespace kvsim::calibrate {
namespace {

[[noreturn]] void refuse() {
    throw std::runtime_error(
        "kvcalib was built without cuBLASLt (package libcublas-dev), and products need it");
}

}  // namespace

struct ProductRunner::Library {};

std::string products_library() {
    refuse();
}

ProductRunner::ProductRunner(std::span<const Product>) {
    refuse();
}

ProductRunner::~ProductRunner() = default;

void ProductRunner::enqueue(std::size_t, const ProductOperands&, cudaStream_t) const {}

}  // namespace kvsim::calibrate
