#include "kernels/calibrate/linear_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>
#include <random>
#include <set>

namespace kvsim::calibrate {
namespace {

constexpr int kComparedRows = 8;

template <class T>
DeviceArray<T> upload(const std::vector<T>& host) {
    return DeviceArray<T>(std::span<const T>(host));
}

auto launcher(Kernel kernel) {
    switch (kernel) {
        case Kernel::kLinearBuffered:
            return launch_linear_buffered;
        case Kernel::kLinearVerifyStored:
            return launch_linear_verify_stored;
        case Kernel::kLinearVerifyBuffered:
            return launch_linear_verify_buffered;
        default:
            return launch_linear_recurrent;
    }
}

void take(const Verification& one, Verification& all) {
    all.max_error = std::max(all.max_error, one.max_error);
    if (!one.passed()) all.fail(one.failure);
}

}  // namespace

LinearBench::LinearBench(std::span<const Case> group, const RotationLimits& limits, std::uint64_t seed,
                         cudaStream_t stream)
    : limits_(limits), seed_(seed), stream_(stream), pools_(group, limits, seed, stream) {}

void LinearBench::prepare(const Case& c) {
    case_ = c;
    sets_ = rotation_sets(c, limits_);
    const auto sets = static_cast<std::size_t>(sets_), batch = static_cast<std::size_t>(c.batch);
    stride_ = (batch + 15) / 16 * 16;

    std::vector<std::int32_t> order(sets * batch);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed_ + 1));
    slot_.assign(sets * stride_, -1);
    for (std::size_t set = 0; set < sets; ++set)
        std::copy_n(order.data() + set * batch, batch, slot_.data() + set * stride_);
    device_slot_ = upload(slot_);
    if (!has_ring(c.kernel)) return;
    phases_ = row_phases(c, seed_ + 2);
    device_start_ = upload(phases_.start);
    device_fill_ = upload(phases_.fill);
    device_flush_ = upload(phases_.flush);
}

LinearParams LinearBench::params(int set) const {
    LinearParams p = pools_.params(index(set) * index(case_.batch) * index(case_.tokens));
    p.batch = case_.batch;
    p.tokens = case_.tokens;
    p.slot = device_slot_.data() + index(set) * stride_;
    p.start = device_start_.data();
    p.fill = device_fill_.data();
    p.flush = device_flush_.data();
    return p;
}

RowSnapshot LinearBench::row_before(int row) const {
    RowSnapshot r = pools_.slot_snapshot(static_cast<std::size_t>(slot_[index(row)]));
    pools_.read_inputs(index(row) * index(case_.tokens), index(case_.tokens), r);
    r.row = row;
    if (has_ring(case_.kernel)) {
        r.start = phases_.start[index(row)];
        r.fill = phases_.fill[index(row)];
        r.flush = phases_.flush[index(row)] != 0;
    }
    return r;
}

RowSnapshot LinearBench::row_after(int row) const {
    RowSnapshot r = pools_.slot_snapshot(static_cast<std::size_t>(slot_[index(row)]));
    pools_.read_outputs(index(row) * index(case_.tokens), index(case_.tokens), r);
    return r;
}

std::vector<std::size_t> LinearBench::bystanders() const {
    const auto first = slot_.begin(), last = first + case_.batch;
    const auto slots = static_cast<std::int32_t>(pools_.slots());
    std::vector<std::size_t> found;
    for (const std::int32_t slot : std::set{0, *first - 1, *first + 1, slots - 1}) {
        if (slot >= 0 && slot < slots && std::find(first, last, slot) == last)
            found.push_back(static_cast<std::size_t>(slot));
    }
    return found;
}

void LinearBench::check_outputs(Verification& result) const {
    const std::vector<float> outputs = pools_.outputs(index(case_.batch) * index(case_.tokens));
    const auto written =
        std::count_if(outputs.begin(), outputs.end(), [](float x) { return std::isfinite(x); });
    const auto wanted = static_cast<std::ptrdiff_t>(outputs.size());
    if (written != wanted)
        result.fail(fmt::format("{} of {} outputs are missing or not finite", wanted - written, wanted));
}

Verification LinearBench::verify() {
    pools_.restore_slots(index(sets_) * index(case_.batch), stream_);
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
    pools_.poison(index(case_.batch) * index(case_.tokens));
    const std::vector<int> rows = sampled_rows(case_.batch, phases_.flush, kComparedRows);
    const std::vector<std::size_t> others = bystanders();
    std::vector<RowSnapshot> before, after, others_before;
    for (const int row : rows) before.push_back(row_before(row));
    for (const std::size_t slot : others) others_before.push_back(pools_.slot_snapshot(slot));
    Verification result;
    if (const cudaError_t error = launches().enqueue(0, stream_); error != cudaSuccess) {
        result.fail(fmt::format("the launch was refused: {}", cudaGetErrorName(error)));
        return result;
    }
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
    check_outputs(result);
    const RowContext context = pools_.context(form_of(case_.kernel));
    for (const int row : rows) after.push_back(row_after(row));
    std::vector<std::future<Verification>> checks;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        checks.push_back(
            std::async(std::launch::async, check_row, context, std::cref(before[i]), std::cref(after[i])));
    }
    for (std::future<Verification>& check : checks) take(check.get(), result);
    for (std::size_t i = 0; i < others.size(); ++i)
        take(check_bystander(others_before[i], pools_.slot_snapshot(others[i])), result);
    return result;
}

Launches LinearBench::launches() const {
    const auto launch = launcher(case_.kernel);
    return {sets_, [this, launch](int set, cudaStream_t stream) { return launch(params(set), stream); }};
}

}  // namespace kvsim::calibrate
