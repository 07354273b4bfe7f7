// Runs the GPU tests, or returns 77 where no device is found. Prints the device and, at the end, the largest
// errors.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include "tests/gpu/comparison_log.hpp"

#if KVSIM_CATCH_VERSION >= 3
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    // Only a machine without a device may skip; a device that cannot be used is a failure.
    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
        fmt::print(stderr, "SKIPPED: no CUDA device ({})\n", cudaGetErrorString(error));
        return 77;
    }
    if (error != cudaSuccess) {
        fmt::print(stderr, "no usable CUDA device: {}\n", cudaGetErrorString(error));
        return 1;
    }
    cudaDeviceProp device{};
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return 1;
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        return 1;
    fmt::print("device: {}, compute capability {}.{}, driver for CUDA {}, runtime {}\n", device.name,
               device.major, device.minor, driver, runtime);
    const int failed = Catch::Session().run(argc, argv);
    for (const auto& [form, entry] : kvsim::comparison_log()) {
        fmt::print("{:<40} {:>9} comparisons, largest relative error {:.2e}\n", form, entry.count,
                   entry.largest);
    }
    return failed;
}
