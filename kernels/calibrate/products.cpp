#include "kernels/calibrate/products.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "kernels/calibrate/cuda_support.hpp"

namespace kvsim::calibrate {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what PyTorch gives cuBLASLt on Hopper

void lt_check(cublasStatus_t status, const char* call, const char* file, int line) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw std::runtime_error(fmt::format("{}:{}: {}: {}", file, line, call, cublasLtGetStatusString(status)));
}
#define KVSIM_LT_CALL(call) lt_check((call), #call, __FILE__, __LINE__)

using Handle = CudaHandle<cublasLtHandle_t, cublasLtDestroy>;
using Description = CudaHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = CudaHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = CudaHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// cuBLASLt counts by columns: a row-major [rows, cols] is its [cols, rows].
Layout make_layout(int rows, int cols) {
    cublasLtMatrixLayout_t layout = nullptr;
    KVSIM_LT_CALL(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, static_cast<std::uint64_t>(cols),
                                             static_cast<std::uint64_t>(rows), cols));
    return Layout(layout);
}

// Output^T [n, m] = weights [n, k] times activations^T [k, m].
struct Plan {
    Description description;
    Layout weights, activations, output;
    cublasLtMatmulAlgo_t algorithm{};
};

Plan make_plan(cublasLtHandle_t handle, const Product& p) {
    Plan plan;
    cublasLtMatmulDesc_t description = nullptr;
    KVSIM_LT_CALL(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    plan.description = Description(description);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    KVSIM_LT_CALL(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                 sizeof transposed));
    plan.weights = make_layout(p.n, p.k);
    plan.activations = make_layout(p.m, p.k);
    plan.output = make_layout(p.m, p.n);

    cublasLtMatmulPreference_t preference = nullptr;
    KVSIM_LT_CALL(cublasLtMatmulPreferenceCreate(&preference));
    const Preference owner(preference);
    KVSIM_LT_CALL(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                       &kWorkspace, sizeof kWorkspace));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    KVSIM_LT_CALL(cublasLtMatmulAlgoGetHeuristic(handle, description, plan.weights.get(),
                                                 plan.activations.get(), plan.output.get(), plan.output.get(),
                                                 preference, 1, &found, &count));
    if (count < 1 || found.state != CUBLAS_STATUS_SUCCESS)
        throw std::runtime_error(fmt::format("cuBLASLt has no algorithm for {} x {} x {}", p.m, p.n, p.k));
    plan.algorithm = found.algo;
    return plan;
}

}  // namespace

struct ProductRunner::Library {
    Handle handle;
    DeviceArray<std::byte> workspace;
    std::vector<Plan> plans;
};

std::string products_library() {
    return fmt::format("{}", cublasLtGetVersion());
}

ProductRunner::ProductRunner(std::span<const Product> round) : library_(std::make_unique<Library>()) {
    cublasLtHandle_t handle = nullptr;
    KVSIM_LT_CALL(cublasLtCreate(&handle));
    library_->handle = Handle(handle);
    library_->workspace = DeviceArray<std::byte>(kWorkspace);
    for (const Product& p : round) library_->plans.push_back(make_plan(handle, p));
}

ProductRunner::~ProductRunner() = default;

void ProductRunner::enqueue(std::size_t index, const ProductOperands& operands, cudaStream_t stream) const {
    const Plan& p = library_->plans[index];
    const float one = 1.0f, zero = 0.0f;
    KVSIM_LT_CALL(cublasLtMatmul(library_->handle.get(), p.description.get(), &one, operands.weights,
                                 p.weights.get(), operands.activations, p.activations.get(), &zero,
                                 operands.output, p.output.get(), operands.output, p.output.get(),
                                 &p.algorithm, library_->workspace.data(), kWorkspace, stream));
}

}  // namespace kvsim::calibrate
