// What the machine is: for `kvcalib check`, the manifest and the clock rule.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/calibrate/replay_rule.hpp"
#include "sim/base/units.hpp"

namespace kvsim::calibrate {

struct DeviceInfo {
    std::string name;
    int major = 0, minor = 0;  // compute capability
    int sms = 0;
    Bytes l2, memory;  // memory: total
    bool ecc = false;
    std::string pci_bus_id;
    std::string driver;       // version of the driver, from NVML; its CUDA version where NVML is missing
    std::string cuda_driver;  // newest CUDA that the driver serves
    std::string cuda_runtime;
    std::string cupti;  // API version of the CUPTI that is loaded
};

// Looks at device 0 and makes it current. Throws CudaError; cudaErrorNoDevice and cudaErrorInsufficientDriver
// mean that there is no GPU to use.
DeviceInfo inspect_device();

// Power at one moment; empty where the driver does not say.
struct Power {
    std::optional<double> watts;                 // now; over the last second where the driver has no other
    std::optional<double> joules;                // since the driver was loaded: differences count
    std::optional<int> celsius;                  // of the chip
    std::optional<std::uint64_t> clock_reasons;  // nvmlClocksEventReason*, all of them
};

// Current clocks, and what holds them down, through NVML, which belongs to the driver and is loaded at run
// time, so that kvcalib also runs where it is missing: clocks are empty then.
class ClockReader {
  public:
    explicit ClockReader(const std::string& pci_bus_id);
    ~ClockReader();
    ClockReader(const ClockReader&) = delete;
    ClockReader& operator=(const ClockReader&) = delete;

    bool available() const { return nvml_ != nullptr; }
    Clocks read() const;
    Power power() const;
    std::optional<double> power_limit_watts() const;
    std::optional<std::string> driver_version() const;

  private:
    struct Nvml;
    std::unique_ptr<Nvml> nvml_;  // null when NVML is missing
};

}  // namespace kvsim::calibrate
