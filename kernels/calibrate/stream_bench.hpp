// Device buffers of the memory probes and of the empty kernel, and the check that the probes do their work.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/calibrate/cuda_support.hpp"
#include "kernels/calibrate/plan.hpp"
#include "kernels/calibrate/row_check.hpp"
#include "kernels/calibrate/timing.hpp"
#include "kernels/launch.hpp"

namespace kvsim::calibrate {

// Set i of a case is the i-th piece of the source and of the destination: of the copy an array as large, of
// the append probe kAppendRecords outputs, then rings of u and of keys. Same interface as LinearBench.
class StreamBench {
  public:
    StreamBench(std::span<const Case> group, const RotationLimits& limits, std::uint64_t seed,
                cudaStream_t stream);

    void prepare(const Case& c);
    // Copy: a poisoned destination equals the source at its beginning, middle and end, and nothing is written
    // behind it. Read: a mark planted among zeros at the first, middle and last word is seen, and no mark is
    // seen without. Append: at the beginning, middle and end, outputs and the records of one slot of the
    // rings are what the source makes them, and nothing else is written there or behind.
    Verification verify();
    Launches launches() const;

  private:
    Verification verify_copy();
    Verification verify_read();
    Verification verify_append();
    StreamAppendParams append_params(int launch) const;
    bool mark_seen(std::size_t word);
    void fill();

    std::size_t bytes() const { return static_cast<std::size_t>(case_.bytes.value()); }

    RotationLimits limits_;
    cudaStream_t stream_;
    DeviceArray<std::uint32_t> pattern_;
    DeviceArray<std::uint32_t> source_;
    DeviceArray<std::uint32_t> destination_;  // of the read probe: one 16-byte piece
    Case case_;
};

class EmptyBench {
  public:
    void prepare(const Case&) {}
    Verification verify() const { return {}; }
    Launches launches() const;
};

}  // namespace kvsim::calibrate
