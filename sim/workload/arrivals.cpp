#include "sim/workload/arrivals.hpp"

#include <queue>
#include <utility>
#include <variant>

#include "sim/base/check.hpp"
#include "sim/workload/synthetic.hpp"

namespace kvsim {
namespace {

class OpenLoop final : public ArrivalSource {
  public:
    OpenLoop(SyntheticWorkload workload, std::uint64_t seed)
        : workload_(std::move(workload)), draws_(workload_, seed) {}

    std::optional<Arrival> next() override {
        if (yielded_ == workload_.requests) return std::nullopt;
        ++yielded_;
        return draws_.request(draws_.next_time());
    }
    void left(Time) override {}
    std::span<const std::uint64_t> blocks() const override { return {}; }
    ArrivalCounts counts() const override { return {yielded_, 0, 0, draws_.clamped()}; }

  private:
    SyntheticWorkload workload_;
    RequestDraws draws_;
    std::int64_t yielded_ = 0;
};

class ClosedLoop final : public ArrivalSource {
  public:
    ClosedLoop(SyntheticWorkload workload, std::uint64_t seed)
        : workload_(std::move(workload)), draws_(workload_, seed), at_zero_(workload_.concurrency) {}

    std::optional<Arrival> next() override {
        if (yielded_ == workload_.requests || (at_zero_ == 0 && places_.empty())) return std::nullopt;
        ++yielded_;
        if (at_zero_ > 0) {
            --at_zero_;
            return draws_.request(Time());
        }
        const Time now = places_.front();
        places_.pop();
        return draws_.request(now);
    }
    void left(Time now) override { places_.push(now); }
    std::span<const std::uint64_t> blocks() const override { return {}; }
    ArrivalCounts counts() const override { return {yielded_, 0, 0, draws_.clamped()}; }

  private:
    SyntheticWorkload workload_;
    RequestDraws draws_;
    std::int64_t yielded_ = 0;
    std::int64_t at_zero_;     // places that nobody has taken yet
    std::queue<Time> places_;  // left, and not taken again
};

class TraceArrivals final : public ArrivalSource {
  public:
    explicit TraceArrivals(ArrivalList list) : list_(std::move(list)) {}

    std::optional<Arrival> next() override {
        if (yielded_ == list_.arrivals.size()) return std::nullopt;
        return list_.arrivals[yielded_++];
    }
    void left(Time) override {}
    std::span<const std::uint64_t> blocks() const override {
        if (list_.first_block.empty() || yielded_ == 0) return {};
        const std::size_t begin = list_.first_block[yielded_ - 1];
        const std::size_t end =
            yielded_ == list_.first_block.size() ? list_.blocks.size() : list_.first_block[yielded_];
        return std::span(list_.blocks).subspan(begin, end - begin);
    }
    std::int64_t block_tokens() const override { return list_.block_tokens; }
    ArrivalCounts counts() const override {
        return {static_cast<std::int64_t>(yielded_) + list_.dropped_zero_output, list_.dropped_zero_output,
                list_.inversions, list_.clamped};
    }

  private:
    ArrivalList list_;
    std::size_t yielded_ = 0;
};

}  // namespace

std::unique_ptr<ArrivalSource> make_arrivals(const WorkloadSpec& workload, std::uint64_t seed) {
    if (const auto* trace = std::get_if<TraceWorkload>(&workload))
        return std::make_unique<TraceArrivals>(read_trace(*trace, seed));
    const auto* synthetic = std::get_if<SyntheticWorkload>(&workload);
    KVSIM_CHECK(synthetic != nullptr && synthetic->requests > 0, "a workload without arrivals");
    if (synthetic->concurrency > 0) return std::make_unique<ClosedLoop>(*synthetic, seed);
    return std::make_unique<OpenLoop>(*synthetic, seed);
}

}  // namespace kvsim
