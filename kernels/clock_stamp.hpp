// What a multiprocessor's clocks read at one moment. Two stamps give the frequency between them, which no
// sampling by the driver can miss.
#pragma once

#include <cstdint>

namespace kvsim {

struct ClockStamp {
    std::uint64_t cycles = 0;       // of the multiprocessor's own clock
    std::uint64_t nanoseconds = 0;  // of the GPU's global timer; 0: this multiprocessor was not seen
};

}  // namespace kvsim
