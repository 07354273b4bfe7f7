// Reads the clock of every multiprocessor.
#include "kernels/clock_stamp.hpp"
#include "kernels/launch.hpp"

namespace kvsim {
namespace {

__global__ void clock_stamp(ClockStamp* stamps, unsigned sms) {
    unsigned sm = 0;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (sm >= sms) return;  // numbers of multiprocessors may have gaps
    ClockStamp stamp;
    stamp.cycles = static_cast<std::uint64_t>(clock64());
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(stamp.nanoseconds));
    stamps[sm] = stamp;
}

}  // namespace

cudaError_t launch_clock_stamp(ClockStamp* stamps, int sms, cudaStream_t stream) {
    if (!stamps || sms < 1) return cudaErrorInvalidValue;
    clock_stamp<<<static_cast<unsigned>(sms), 1, 0, stream>>>(stamps, static_cast<unsigned>(sms));
    return cudaGetLastError();
}

}  // namespace kvsim
