#include "kernels/calibrate/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "kernels/calibrate/activity.hpp"
#include "kernels/calibrate/counters.hpp"
#include "kernels/calibrate/linear_bench.hpp"
#include "kernels/calibrate/stream_bench.hpp"
#include "kernels/calibrate/timing.hpp"

namespace kvsim::calibrate {
namespace {

using std::chrono::steady_clock;

constexpr int kMinCountedLaunches =
    8;  // so that write-backs of one launch's lines balance those of another's
constexpr int kRecordedLaunches = 20;

std::string label(const Case& c) {
    if (!is_linear(c.kernel)) return std::string(name(c.kernel));
    std::string text = fmt::format("{} {}/{} heads, {} state", name(c.kernel), c.shape.k_heads,
                                   c.shape.v_heads, name(c.shape.state));
    if (has_ring(c.kernel))
        text += fmt::format(", {} records, ring {}", name(c.shape.records), c.buffer_length);
    return text;
}

// What label() leaves out.
std::string detail(const Case& c) {
    if (!is_linear(c.kernel)) return fmt::format(" of {} bytes", c.bytes.value());
    std::string text = fmt::format(", batch {}, {} new tokens", c.batch, c.tokens);
    if (has_ring(c.kernel)) {
        text += fmt::format(", fill {}, {} rows flush", c.fill ? fmt::format("{}", *c.fill) : "mixed",
                            c.flush_rows);
    }
    return text;
}

// One line on stderr per group, when it is done.
class Progress {
  public:
    explicit Progress(std::string pass) : pass_(std::move(pass)) {}
    ~Progress() { close(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void step(const Case& c) {
        std::string what = label(c);
        if (what != what_) close();
        if (count_ == 0) {
            what_ = std::move(what);
            start_ = steady_clock::now();
        }
        ++count_;
    }

  private:
    void close() {
        if (count_ == 0) return;
        const std::chrono::duration<double> seconds = steady_clock::now() - start_;
        fmt::print(stderr, "{}: {}: {} rows, {:.1f} s\n", pass_, what_, count_, seconds.count());
        count_ = 0;
    }

    std::string pass_, what_;
    int count_ = 0;
    steady_clock::time_point start_;
};

RotationLimits rotation_limits(const DeviceInfo& device) {
    // At a few rows, thousands of sets would be needed: pools of more than a few GiB add misses of the address
    // translation, which servers do not have. A quarter of a smaller memory.
    constexpr Bytes kPool{std::int64_t{2} << 30};
    return {device.l2, std::min(kPool, Bytes(device.memory.value() / 4))};
}

// Calls visit(index, bench) for every case, with the bench of its group prepared for it; within a group in
// shuffled order. Pools live as long as their group; equal seeds give all passes equal data and order.
template <class Visit>
void for_each_case(const std::vector<Case>& cases, const RotationLimits& limits, std::uint64_t seed,
                   cudaStream_t stream, Visit visit) {
    std::size_t first = 0;
    for (const std::span<const Case> group : groups(cases)) {
        const auto run = [&](auto& bench) {
            for (const std::size_t i : measuring_order(group.size(), seed)) {
                bench.prepare(group[i]);
                visit(first + i, bench);
            }
        };
        if (is_linear(group.front().kernel)) {
            LinearBench bench(group, limits, seed, stream);
            run(bench);
        } else if (group.front().kernel == Kernel::kEmpty) {
            EmptyBench bench;
            run(bench);
        } else {
            StreamBench bench(group, limits, seed, stream);
            run(bench);
        }
        first += group.size();
    }
}

// At least `least` launches, and whole rotations.
int rotated(const Launches& launches, int least) {
    return (least + launches.sets - 1) / launches.sets * launches.sets;
}

void record_timing(const Timing& timing, ProfileRow& row) {
    const ReplaySummary& replays = timing.batch.replays;
    row.time_us = to_us(replays.median);
    row.time_min_us = to_us(replays.min);
    row.time_max_us = to_us(replays.max);
    row.repeats = replays.replays;
    row.launches = timing.launches;
    if (timing.batch.clocks.sm_mhz) row.sm_mhz = *timing.batch.clocks.sm_mhz;
    row.clock_limit = timing.batch.clocks.limit;
}

class Run {
  public:
    Run(const std::vector<Case>& cases, const DeviceInfo& device, const MeasureOptions& options)
        : cases_(cases),
          limits_(rotation_limits(device)),
          options_(options),
          clocks_(device.pci_bus_id),
          stream_(make_stream()) {
        for (const Case& c : cases) {
            result_.rows.push_back(describe(c));
            result_.rows.back().sets = rotation_sets(c, limits_);
        }
    }

    Measurement finish() && { return std::move(result_); }

    void verify_and_time() {
        ReplayTimer timer(clocks_, stream_.get());
        Progress progress("time");
        result_.clocks_before = clocks_.read();
        for_each([&](std::size_t i, auto& bench) {
            progress.step(cases_[i]);
            if (!verified(i, bench.verify())) return;
            const Timing timing = timer.time(bench.launches());
            record_timing(timing, result_.rows[i]);
            result_.unsettled += timing.batch.replays.settled() ? 0 : 1;
            result_.limited += timing.batch.limited() ? 1 : 0;
        });
        result_.clocks_after = clocks_.read();
        result_.highest_sm_mhz = timer.highest_sm_mhz();
    }

    void record_durations() {
        try {
            ActivityRecorder recorder;
            Progress progress("durations");
            for_each([&](std::size_t i, auto& bench) {
                if (!timed(i)) return;
                progress.step(cases_[i]);
                const Launches launches = bench.launches();
                launches.rotate(launches.sets, stream_.get());  // leaves the L2 as a rotation does
                const Time duration = recorder.median_duration(
                    kRecordedLaunches, [&] { launches.rotate(kRecordedLaunches, stream_.get()); });
                result_.rows[i].cupti_us = to_us(duration);
            });
        } catch (const std::runtime_error& error) {  // CuptiError, or a launch that CUPTI broke
            result_.no_cupti_us = error.what();
        }
    }

    void count_traffic() {
        if (!options_.counters) {
            result_.no_counters = "left out by --no-counters";
            return;
        }
        try {
            Progress progress("counters");
            for_each([&](std::size_t i, auto& bench) {
                if (!timed(i)) return;
                progress.step(cases_[i]);
                count_case(i, bench.launches());
            });
            close_session();
        } catch (const std::runtime_error& error) {  // likewise
            session_.reset();
            result_.no_counters = error.what();
        }
    }

  private:
    template <class Visit>
    void for_each(Visit visit) {
        for_each_case(cases_, limits_, options_.seed, stream_.get(), visit);
    }

    bool timed(std::size_t i) const { return result_.rows[i].time_us.has_value(); }

    bool verified(std::size_t i, const Verification& outcome) {
        ProfileRow& row = result_.rows[i];
        row.verified = outcome.passed();
        if (is_linear(cases_[i].kernel) && std::isfinite(outcome.max_error))
            row.max_error = outcome.max_error;
        if (outcome.passed()) return true;
        ++result_.failed;
        fmt::print(stderr, "FAILED {}{}: {}\n", label(cases_[i]), detail(cases_[i]), outcome.failure);
        return false;
    }

    void count_case(std::size_t i, const Launches& launches) {
        if (!session_) session_ = std::make_unique<CounterSession>();
        // A rotation first: dirty lines that the range writes back for it are made up for by those that it
        // leaves.
        const int count = rotated(launches, kMinCountedLaunches);
        launches.rotate(count, stream_.get());
        session_->count([&] { launches.rotate(count, stream_.get()); });
        counted_.push_back({i, count});
        if (counted_.size() == kRangesPerSession) close_session();
    }

    void close_session() {
        if (!session_) return;
        const std::vector<MetricValues> values = session_->finish();
        session_.reset();
        for (std::size_t range = 0; range < counted_.size(); ++range) {
            const auto [i, launches] = counted_[range];
            if (values[range].l2 == Bytes(0) && cases_[i].kernel != Kernel::kEmpty) {
                throw CuptiError(fmt::format("counters saw no memory traffic of {}", name(cases_[i].kernel)));
            }
            result_.rows[i].dram_read_bytes = values[range].dram_read.value() / launches;
            result_.rows[i].dram_write_bytes = values[range].dram_write.value() / launches;
        }
        counted_.clear();
    }

    struct Counted {
        std::size_t row = 0;
        int launches = 0;
    };

    const std::vector<Case>& cases_;
    RotationLimits limits_;
    MeasureOptions options_;
    ClockReader clocks_;
    Stream stream_;
    Measurement result_;
    std::unique_ptr<CounterSession> session_;
    std::vector<Counted> counted_;  // ranges of the open session
};

}  // namespace

Measurement measure(const std::vector<Case>& cases, const DeviceInfo& device, const MeasureOptions& options) {
    Run run(cases, device, options);
    run.verify_and_time();
    run.record_durations();
    run.count_traffic();
    return std::move(run).finish();
}

}  // namespace kvsim::calibrate
