#include "kernels/calibrate/device_info.hpp"

#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "kernels/calibrate/cuda_support.hpp"

namespace kvsim::calibrate {
namespace {

int attribute(cudaDeviceAttr which) {
    int value = 0;
    KVSIM_CUDA_CALL(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

// CUDA counts 1000 major + 10 minor.
std::string cuda_version(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

// The part of NVML's C interface that is used here; its header is not in every toolkit.
struct ClockReader::Nvml {
    using Device = struct DeviceHandle*;
    static constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
    static constexpr int kChipTemperature = 0;            // nvmlTemperatureSensors_t
    static constexpr unsigned kFieldPowerNow = 186;       // NVML_FI_DEV_POWER_INSTANT, in mW
    struct Field {                                        // nvmlFieldValue_t
        unsigned id = 0, scope = 0;
        long long timestamp = 0, latency_us = 0;
        int value_type = 0, result = 0;
        union {
            unsigned value;
            unsigned long long widest;
        };
    };

    void* library = nullptr;
    int (*shutdown)() = nullptr;
    int (*clock)(Device, int, unsigned*) = nullptr;
    int (*reasons)(Device, unsigned long long*) = nullptr;  // null in drivers that have neither name
    int (*driver)(char*, unsigned) = nullptr;
    // Null in drivers that lack them.
    int (*fields)(Device, int, Field*) = nullptr;
    int (*milliwatts)(Device, unsigned*) = nullptr;
    int (*limit_milliwatts)(Device, unsigned*) = nullptr;
    int (*millijoules)(Device, unsigned long long*) = nullptr;
    int (*temperature)(Device, int, unsigned*) = nullptr;
    Device device = nullptr;

    template <class Function>
    bool load(const char* symbol, Function& function) const {
        function = reinterpret_cast<Function>(dlsym(library, symbol));
        return function != nullptr;
    }

    bool open(const std::string& pci_bus_id) {
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        int (*init)() = nullptr;
        int (*by_bus)(const char*, Device*) = nullptr;
        if (library == nullptr || !load("nvmlShutdown", shutdown) || !load("nvmlInit_v2", init) ||
            !load("nvmlDeviceGetHandleByPciBusId_v2", by_bus) || !load("nvmlDeviceGetClockInfo", clock) ||
            !load("nvmlSystemGetDriverVersion", driver) || init() != 0) {
            shutdown = nullptr;
            return false;
        }
        if (!load("nvmlDeviceGetCurrentClocksEventReasons", reasons))
            load("nvmlDeviceGetCurrentClocksThrottleReasons", reasons);  // its name before driver 535
        load("nvmlDeviceGetFieldValues", fields);
        load("nvmlDeviceGetPowerUsage", milliwatts);
        load("nvmlDeviceGetEnforcedPowerLimit", limit_milliwatts);
        load("nvmlDeviceGetTotalEnergyConsumption", millijoules);
        load("nvmlDeviceGetTemperature", temperature);
        return by_bus(pci_bus_id.c_str(), &device) == 0;
    }
    ~Nvml() {
        if (shutdown != nullptr) shutdown();
        if (library != nullptr) dlclose(library);
    }

    std::optional<int> mhz(int type) const {
        unsigned value = 0;
        if (clock(device, type, &value) != 0) return std::nullopt;
        return static_cast<int>(value);
    }

    std::optional<std::uint64_t> clock_reasons() const {
        unsigned long long bits = 0;
        if (reasons == nullptr || reasons(device, &bits) != 0) return std::nullopt;
        return bits;
    }

    // In thousandths of a unit, of a function that may be missing.
    template <class Value>
    std::optional<double> thousandths(int (*function)(Device, Value*)) const {
        Value value = 0;
        if (function == nullptr || function(device, &value) != 0) return std::nullopt;
        return 1e-3 * static_cast<double>(value);
    }

    std::optional<double> watts() const {
        Field now;
        now.id = kFieldPowerNow;
        now.widest = 0;
        if (fields != nullptr && fields(device, 1, &now) == 0 && now.result == 0) return 1e-3 * now.value;
        return thousandths(milliwatts);
    }

    std::optional<int> celsius() const {
        unsigned value = 0;
        if (temperature == nullptr || temperature(device, kChipTemperature, &value) != 0) return std::nullopt;
        return static_cast<int>(value);
    }
};

ClockReader::ClockReader(const std::string& pci_bus_id) : nvml_(std::make_unique<Nvml>()) {
    if (!nvml_->open(pci_bus_id)) nvml_.reset();
}

ClockReader::~ClockReader() = default;

Clocks ClockReader::read() const {
    if (!nvml_) return {};
    const std::optional<std::uint64_t> reasons = nvml_->clock_reasons();
    return {nvml_->mhz(Nvml::kSmClock), nvml_->mhz(Nvml::kMemoryClock),
            reasons ? std::optional(clock_limit(*reasons)) : std::nullopt};
}

Power ClockReader::power() const {
    if (!nvml_) return {};
    return {nvml_->watts(), nvml_->thousandths(nvml_->millijoules), nvml_->celsius(), nvml_->clock_reasons()};
}

std::optional<double> ClockReader::power_limit_watts() const {
    return nvml_ ? nvml_->thousandths(nvml_->limit_milliwatts) : std::nullopt;
}

std::optional<std::string> ClockReader::driver_version() const {
    std::array<char, 96> text{};
    if (!nvml_ || nvml_->driver(text.data(), text.size()) != 0) return std::nullopt;
    return std::string(text.data());
}

DeviceInfo inspect_device() {
    int count = 0;
    KVSIM_CUDA_CALL(cudaGetDeviceCount(&count));
    if (count == 0) cuda_check(cudaErrorNoDevice, "cudaGetDeviceCount(&count)", __FILE__, __LINE__);
    KVSIM_CUDA_CALL(cudaSetDevice(0));
    KVSIM_CUDA_CALL(cudaFree(nullptr));  // makes the context, which CUPTI asks for

    cudaDeviceProp properties{};
    KVSIM_CUDA_CALL(cudaGetDeviceProperties(&properties, 0));
    std::array<char, 32> bus{};
    KVSIM_CUDA_CALL(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), 0));
    int driver = 0, runtime = 0;
    KVSIM_CUDA_CALL(cudaDriverGetVersion(&driver));
    KVSIM_CUDA_CALL(cudaRuntimeGetVersion(&runtime));
    std::uint32_t cupti = 0;
    const bool cupti_known = cuptiGetVersion(&cupti) == CUPTI_SUCCESS;

    DeviceInfo info;
    info.name = properties.name;
    info.major = properties.major;
    info.minor = properties.minor;
    info.sms = properties.multiProcessorCount;
    info.l2 = Bytes(properties.l2CacheSize);
    info.memory = Bytes(static_cast<std::int64_t>(properties.totalGlobalMem));
    info.ecc = attribute(cudaDevAttrEccEnabled) != 0;
    info.pci_bus_id = bus.data();
    info.cuda_driver = cuda_version(driver);
    info.cuda_runtime = cuda_version(runtime);
    info.driver = ClockReader(info.pci_bus_id).driver_version().value_or("CUDA " + info.cuda_driver);
    info.cupti = cupti_known ? fmt::format("{}", cupti) : "unknown";
    return info;
}

}  // namespace kvsim::calibrate
