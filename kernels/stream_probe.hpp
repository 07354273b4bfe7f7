// What a test of the read probe needs to know: see StreamProbeParams in kernels/launch.hpp.
#pragma once

#include <cstdint>

namespace kvsim {

// A thread of the read probe XORs the 32-bit words that it reads and writes the result to the destination
// only if it is this value. So the compiler must keep the loads, and a test sees whether a word is read by
// planting it among zeros.
inline constexpr std::uint32_t kStreamReadMark = 0x9d3f71a5u;

}  // namespace kvsim
