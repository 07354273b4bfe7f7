// What the append probe of the memory roof reads and writes (launch_stream_append): a launch of buffered
// decode without its arithmetic and its gates. It reads fp32 states of heads of 128 x 128 and writes an
// output and a record for each head, a key for every two.
#pragma once

#include <cstdint>

namespace kvsim {

inline constexpr std::int64_t kAppendBlockBytes = 16 << 10;  // of the states, read by one block of threads
inline constexpr std::int64_t kAppendBlocksPerHead = 4;
inline constexpr std::int64_t kAppendBlocksPerKey = 2 * kAppendBlocksPerHead;
inline constexpr std::int64_t kAppendVectorBytes = 256;  // an output, u or a key of a head: 128 bf16
inline constexpr std::int64_t kAppendRecords = 16;       // of a ring

// Sizes that it takes are multiples of this: whole pairs of heads.
inline constexpr std::int64_t kAppendUnit = kAppendBlocksPerKey * kAppendBlockBytes;

// Bytes written when `read` are: output and u of every head, a key for two. 5 x 256 for 128 KiB: 20,480 for a
// row of 2 MiB, which has 32 heads.
constexpr std::int64_t appended_bytes(std::int64_t read) {
    return read / kAppendUnit * 5 * kAppendVectorBytes;
}

}  // namespace kvsim
