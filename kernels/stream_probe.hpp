// What tests of the probes need to know: see StreamProbeParams and StreamAppendParams in kernels/launch.hpp.
#pragma once

#include <cstdint>

namespace kvsim {

// A thread of the read probe XORs the 32-bit words that it reads and writes the result to the destination
// only if it is this value. So the compiler must keep the loads, and a test sees whether a word is read by
// planting it among zeros.
inline constexpr std::uint32_t kStreamReadMark = 0x9d3f71a5u;

// Everything that a block of the append probe writes is 16 words: word 8 w + j is the XOR of the 32-bit words
// of warp w's half of the block's bytes that lie in 16-byte pieces j, j + 8, j + 16, ... of it. They are the
// block's part of the output and of u; a key repeats each warp's eight words four times.
inline constexpr int kAppendWords = 16;

}  // namespace kvsim
