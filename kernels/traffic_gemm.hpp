// Bytes and FLOPs of a bf16 matrix product, M x N x K: activations [M, K] times weights [N, K], output [M,
// N]. DRAM traffic of a cold launch: each operand read once, the output written once.
#pragma once

#include <cstdint>

namespace kvsim {

struct GemmTraffic {
    std::int64_t weights = 0;      // bytes read
    std::int64_t activations = 0;  // bytes read and written
    std::int64_t flops = 0;        // multiply and add count as two

    constexpr std::int64_t total() const { return weights + activations; }
};

constexpr GemmTraffic gemm_traffic(std::int64_t m, std::int64_t n, std::int64_t k) {
    return {2 * n * k, 2 * m * (k + n), 2 * m * n * k};
}

}  // namespace kvsim
