// A GPU as its data sheet and driver describe it. Achieved rates come from profiles, never from here: these
// are ceilings for the physics check and the compute side of operators that nobody has measured yet.
#pragma once

#include <string>

#include "sim/base/units.hpp"

namespace kvsim {

struct DeviceSpec {
    std::string name;
    Bytes memory;                     // as the driver reports it
    Bandwidth peak_bandwidth;         // data sheet
    FlopRate peak_bf16;               // dense tensor-core rate, data sheet
    FlopRate peak_fp8;                // dense tensor-core rate; 0: no such unit
    FlopRate peak_fp4;                // likewise
    Bandwidth link_bandwidth;         // to other GPUs of the node, one direction: NVLink or PCIe; 0: unknown
    double compute_capability = 0.0;  // of CUDA; 0: unknown
    Bytes l2;
    int sm_count = 0;
    std::string profile;  // folder of profiles/ with its fit.yaml
};

}  // namespace kvsim
