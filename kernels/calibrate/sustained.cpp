#include "kernels/calibrate/sustained.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "kernels/calibrate/clock_sampler.hpp"
#include "kernels/calibrate/product_bench.hpp"
#include "kernels/calibrate/stream_bench.hpp"
#include "kernels/launch.hpp"

namespace kvsim::calibrate {
namespace {

using std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::uint64_t kSeed = 1;
constexpr std::chrono::microseconds kSamplePeriod{5000};
constexpr std::chrono::milliseconds kSampledAfterwards{50};
constexpr Bytes kCopied{std::int64_t{256} << 20};  // by one copy: beyond the L2, a fraction of a slice
constexpr int kEstimateCopies = 20;
constexpr int kL2Multiple = 4;  // as for cold rows of profiles

double elapsed_ms(const Event& begin, const Event& end) {
    float ms = 0.0f;
    KVSIM_CUDA_CALL(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    return ms;
}

void pause(Time time) {
    std::this_thread::sleep_for(std::chrono::duration<double>(to_seconds(time)));
}

// Time on the GPU of what `work` enqueues, once the stream is empty.
template <class Work>
Time timed(cudaStream_t stream, Work work) {
    const Event begin = make_event(), end = make_event();
    KVSIM_CUDA_CALL(cudaEventRecord(begin.get(), stream));
    work();
    KVSIM_CUDA_CALL(cudaEventRecord(end.get(), stream));
    KVSIM_CUDA_CALL(cudaEventSynchronize(end.get()));
    return time_from_us(1e3 * elapsed_ms(begin, end));
}

// Readings of the clocks between slices of work.
class Boundaries {
  public:
    Boundaries(std::size_t count, int sms, cudaStream_t stream)
        : sms_(static_cast<std::size_t>(sms)), stream_(stream), stamps_(count * sms_) {
        before_.reserve(count);
        after_.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            before_.push_back(make_event());
            after_.push_back(make_event());
        }
        KVSIM_CUDA_CALL(cudaMemset(stamps_.data(), 0, stamps_.bytes()));
    }

    // Enqueues the next reading.
    void mark() {
        KVSIM_CUDA_CALL(cudaEventRecord(before_[marked_].get(), stream_));
        KVSIM_CUDA_CALL(launch_clock_stamp(stamps_.data() + marked_ * sms_, static_cast<int>(sms_), stream_));
        KVSIM_CUDA_CALL(cudaEventRecord(after_[marked_].get(), stream_));
        ++marked_;
    }

    // All below once the stream is idle.
    const Event& end_of(std::size_t reading) const { return after_[reading]; }
    // The slice between readings `i` and `i` + 1.
    double time_us(std::size_t i) const { return 1e3 * elapsed_ms(after_[i], before_[i + 1]); }
    std::optional<double> mhz(std::size_t i) const { return sm_mhz(stamps(i), stamps(i + 1)); }

  private:
    std::vector<ClockStamp> stamps(std::size_t i) const {
        std::vector<ClockStamp> result(sms_);
        stamps_.download(i * sms_, result);
        return result;
    }

    std::size_t sms_;
    cudaStream_t stream_;
    DeviceArray<ClockStamp> stamps_;
    std::vector<Event> before_, after_;
    std::size_t marked_ = 0;
};

void require(const Verification& outcome) {
    if (!outcome.passed()) throw std::runtime_error("wrong output, nothing is timed: " + outcome.failure);
}

// Copies that fill the time of a memory-bound phase.
class MemoryLoad {
  public:
    MemoryLoad(const DeviceInfo& device, cudaStream_t stream)
        : case_{.kernel = Kernel::kStreamCopy, .bytes = kCopied},
          bench_(std::span(&case_, 1), {device.l2, kCopied * 4}, kSeed, stream) {
        bench_.prepare(case_);
        require(bench_.verify());
        launches_ = bench_.launches();
        launches_.rotate(launches_.sets, stream);
        copy_ = timed(stream, [&] { launches_.rotate(kEstimateCopies, stream); });
        copy_ = Time(copy_.value() / kEstimateCopies);
    }

    std::int64_t copies_per_slice(Time slice) const {
        return std::max<std::int64_t>(1, slice.value() / copy_.value());
    }
    std::int64_t slices(Time slice, Time total) const {
        return total.value() / (copy_.value() * copies_per_slice(slice));
    }
    void enqueue(std::int64_t copies, cudaStream_t stream) const {
        launches_.rotate(static_cast<int>(copies), stream);
    }
    static Bytes bytes_per_copy() { return kCopied * 2; }

  private:
    Case case_;
    StreamBench bench_;
    Launches launches_;
    Time copy_;
};

class Run {
  public:
    Run(const SustainedPlan& plan, const DeviceInfo& device, const ClockReader& reader)
        : plan_(plan),
          device_(device),
          reader_(reader),
          stream_(make_stream()),
          memory_(device, stream_.get()) {
        Boundaries(1, device.sms, stream_.get()).mark();  // loads its code
        KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_.get()));
    }

    LoadRun load(const SustainedLoad& load) const {
        const ProductBench bench(load.products, load.data, kSeed, stream_.get());
        require(bench.verify(stream_.get()));
        const std::vector<SliceRow> planned = plan_slices(load, bench);
        Boundaries boundaries(planned.size() + 1, device_.sms, stream_.get());
        const Event start = make_event();

        ClockSampler sampler(reader_, kSamplePeriod);
        pause(load.idle);
        KVSIM_CUDA_CALL(cudaEventRecord(start.get(), stream_.get()));
        KVSIM_CUDA_CALL(cudaEventSynchronize(start.get()));
        const steady_clock::time_point started = steady_clock::now();
        std::size_t product = 0;
        boundaries.mark();
        for (const SliceRow& slice : planned) {
            if (slice.phase == LoadPhase::kMemory) {
                memory_.enqueue(slice.launches, stream_.get());
            } else {
                for (std::int64_t i = 0; i < slice.launches; ++i) bench.enqueue(product++, stream_.get());
            }
            boundaries.mark();
        }
        KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_.get()));
        std::this_thread::sleep_for(kSampledAfterwards);
        const std::vector<ClockSample> samples = sampler.stop();

        LoadRun run;
        run.slices = planned;
        const std::size_t first_product = static_cast<std::size_t>(
            std::find_if(planned.begin(), planned.end(),
                         [](const SliceRow& s) { return s.phase == LoadPhase::kProducts; }) -
            planned.begin());
        const double zero_ms = elapsed_ms(start, boundaries.end_of(first_product));
        for (std::size_t i = 0; i < planned.size(); ++i) {
            run.slices[i].start_ms = elapsed_ms(start, boundaries.end_of(i)) - zero_ms;
            run.slices[i].time_us = boundaries.time_us(i);
            run.slices[i].sm_mhz = boundaries.mhz(i);
        }
        for (const ClockSample& sample : samples) {
            run.clocks.push_back(
                {Milliseconds(sample.at - started).count() - zero_ms, sample.clocks, sample.power});
        }
        return run;
    }

    std::vector<BurstRow> burst(const Product& product) const {
        const ProductBench bench({&product, 1}, OperandData::kNormal, kSeed, stream_.get());
        require(bench.verify(stream_.get()));
        const DeviceArray<std::byte> others(static_cast<std::size_t>(device_.l2.value() * kL2Multiple));
        std::vector<BurstRow> rows;
        for (int call = 0; call < plan_.burst_calls; ++call) {
            Boundaries boundaries(2, device_.sms, stream_.get());
            pause(plan_.burst_idle);
            // Also hides that the rest is still being enqueued.
            KVSIM_CUDA_CALL(cudaMemsetAsync(others.data(), call, others.bytes(), stream_.get()));
            boundaries.mark();
            bench.enqueue(0, stream_.get());
            boundaries.mark();
            KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_.get()));
            rows.push_back({product, call, boundaries.time_us(0), boundaries.mhz(0)});
        }
        return rows;
    }

  private:
    // What every slice holds; the rate of one round says how much fills the time.
    std::vector<SliceRow> plan_slices(const SustainedLoad& load, const ProductBench& bench) const {
        std::vector<SliceRow> rows;
        if (load.memory > Time(0)) {
            SliceRow copies;
            copies.phase = LoadPhase::kMemory;
            copies.launches = memory_.copies_per_slice(plan_.slice);
            copies.bytes = MemoryLoad::bytes_per_copy() * copies.launches;
            rows.assign(static_cast<std::size_t>(memory_.slices(plan_.slice, load.memory)), copies);
        }
        Flops flops;
        for (const Product& p : load.products) flops += p.flops();
        const Time round = timed(stream_.get(), [&] {
            for (std::size_t i = 0; i < load.products.size(); ++i) bench.enqueue(i, stream_.get());
        });
        const auto work = [&](Time time) {
            return Flops(static_cast<std::int64_t>(static_cast<double>(flops.value()) * (time / round)));
        };
        for (const Slice& slice : cut_slices(load.products, work(plan_.slice), work(load.busy))) {
            SliceRow products;
            products.launches = static_cast<std::int64_t>(slice.count);
            products.flops = slice.flops;
            rows.push_back(products);
        }
        return rows;
    }

    const SustainedPlan& plan_;
    const DeviceInfo& device_;
    const ClockReader& reader_;
    Stream stream_;
    MemoryLoad memory_;
};

std::string label(const SustainedLoad& load) {
    return fmt::format("{}, {} rows, {}{}", load.name, load.products.front().m,
                       kOperandDataNames[static_cast<std::size_t>(load.data)],
                       load.memory > Time(0) ? ", after memory" : "");
}

}  // namespace

SustainedMeasurement measure_sustained(const SustainedPlan& plan, const DeviceInfo& device) {
    SustainedMeasurement result;
    result.cublaslt = products_library();
    const ClockReader reader(device.pci_bus_id);
    if (!reader.available()) {
        throw std::runtime_error(
            "kvcalib sustained reads clocks through NVML, and libnvidia-ml.so.1 of the driver cannot be "
            "used");
    }
    result.power_limit_watts = reader.power_limit_watts();
    const Run run(plan, device, reader);
    for (const SustainedLoad& load : plan.loads) {
        const steady_clock::time_point start = steady_clock::now();
        result.loads.push_back(run.load(load));
        const std::chrono::duration<double> seconds = steady_clock::now() - start;
        fmt::print(stderr, "{}: {} slices, {:.1f} s\n", label(load), result.loads.back().slices.size(),
                   seconds.count());
    }
    for (const Product& product : plan.bursts) {
        const std::vector<BurstRow> rows = run.burst(product);
        result.bursts.insert(result.bursts.end(), rows.begin(), rows.end());
    }
    return result;
}

}  // namespace kvsim::calibrate
