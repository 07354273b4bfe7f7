// Devices for tests of laws, in round numbers.
#pragma once

#include "sim/cost/device.hpp"

namespace kvsim {

// 100 SMs, 10 MB of L2, 1 TB/s, 1 PFLOP/s in bf16: an SM does 10 MFLOP per microsecond.
inline DeviceSpec round_device(double compute_capability) {
    DeviceSpec d;
    d.name = "round";
    d.peak_bandwidth = Bandwidth(1e12);
    d.peak_bf16 = FlopRate(1e15);
    d.peak_fp8 = FlopRate(2e15);
    d.link_bandwidth = Bandwidth(1e11);
    d.l2 = Bytes(10'000'000);
    d.sm_count = 100;
    d.compute_capability = compute_capability;
    return d;
}

}  // namespace kvsim
