#include "kernels/calibrate/linear_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>

#include "kernels/traffic_linear.hpp"

namespace kvsim::calibrate {
namespace {

// Prime, so that a kernel that mixes up rows or slots at a power of two meets other data.
constexpr int kDistinctRows = 61;
constexpr int kDistinctSlots = 5;
constexpr double kStateScale = 0.1;
constexpr int kComparedRows = 8;

std::size_t key_width(const LinearShape& s) {
    return std::size_t(s.k_heads) * s.k_dim;
}
std::size_t value_width(const LinearShape& s) {
    return std::size_t(s.v_heads) * s.v_dim;
}
std::size_t qkv_width(const LinearShape& s) {
    return 2 * key_width(s) + value_width(s);
}

std::vector<float> normal(std::size_t count, double scale, std::mt19937_64& random) {
    std::normal_distribution<float> distribution(0.0f, static_cast<float>(scale));
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random);
    return values;
}

std::vector<__nv_bfloat16> to_bf16(const std::vector<float>& values) {
    std::vector<__nv_bfloat16> result(values.size());
    std::transform(values.begin(), values.end(), result.begin(), [](float x) { return __float2bfloat16(x); });
    return result;
}

template <class T>
DeviceArray<T> upload(const std::vector<T>& host) {
    return DeviceArray<T>(std::span<const T>(host));
}

float widen(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
float widen(float x) {
    return x;
}

// Block `index` of a pool that is made of `blocks` equal ones, as float.
template <class T>
std::vector<float> download(const DeviceArray<T>& pool, std::size_t blocks, std::size_t index) {
    std::vector<T> values(pool.size() / blocks);
    pool.download(index * values.size(), values);
    std::vector<float> result(values.size());
    std::transform(values.begin(), values.end(), result.begin(), [](T x) { return widen(x); });
    return result;
}

std::size_t pool_slots(std::span<const Case> group, Bytes l2_capacity) {
    std::size_t slots = 0;
    for (const Case& c : group) {
        slots =
            std::max(slots, std::size_t(rotation_sets(c, l2_capacity)) * static_cast<std::size_t>(c.batch));
    }
    return slots;
}

}  // namespace

LinearBench::LinearBench(std::span<const Case> group, Bytes l2_capacity, std::uint64_t seed,
                         cudaStream_t stream)
    : shape_(group.front().shape),
      capacity_(group.front().buffer_length),
      slots_(pool_slots(group, l2_capacity)),
      l2_capacity_(l2_capacity),
      seed_(seed),
      stream_(stream) {
    std::mt19937_64 random(seed);
    make_patterns(random);
    if (capacity_ > 0) make_ring_patterns(random);
    allocate();
}

void LinearBench::make_patterns(std::mt19937_64& random) {
    // The ranges in which published layers are initialised: A in [1, 16], softplus(dt_bias) in [0.001, 0.1].
    std::uniform_real_distribution<double> rate(1.0, 16.0), log_step(std::log(1e-3), std::log(1e-1));
    for (int h = 0; h < shape_.v_heads; ++h) {
        a_log_.push_back(static_cast<float>(std::log(rate(random))));
        dt_bias_.push_back(static_cast<float>(std::log(std::expm1(std::exp(log_step(random))))));
    }
    device_a_log_ = upload(a_log_);
    device_dt_bias_ = upload(dt_bias_);
    const auto heads = static_cast<std::size_t>(shape_.v_heads);
    patterns_.qkv = upload(to_bf16(normal(kDistinctRows * qkv_width(shape_), 1.0, random)));
    patterns_.a = upload(to_bf16(normal(kDistinctRows * heads, 1.0, random)));
    patterns_.b = upload(to_bf16(normal(kDistinctRows * heads, 1.0, random)));
    const auto state = static_cast<std::size_t>(state_elements(shape_));
    patterns_.state = upload(normal(kDistinctSlots * state, kStateScale, random));
}

void LinearBench::make_ring_patterns(std::mt19937_64& random) {
    const auto capacity = static_cast<std::size_t>(capacity_);
    const auto dim = static_cast<std::size_t>(shape_.k_dim);
    std::vector<float> keys = normal(kDistinctSlots * key_width(shape_) * capacity, 1.0, random);
    for (std::size_t first = 0; first < keys.size(); first += dim) {
        const std::span<float> key(keys.data() + first, dim);
        const float norm = std::sqrt(std::inner_product(key.begin(), key.end(), key.begin(), 0.0f));
        for (float& value : key) value /= norm;
    }
    patterns_.ring_k = upload(to_bf16(keys));
    patterns_.ring_u = upload(to_bf16(normal(kDistinctSlots * value_width(shape_) * capacity, 1.0, random)));

    // Log gates summed since the flush: record i of a head holds the sum of i + 1 negative steps.
    std::uniform_real_distribution<float> step(-0.2f, -0.001f);
    std::vector<float> gates(std::size_t(kDistinctSlots) * shape_.v_heads * capacity);
    for (std::size_t i = 0; i < gates.size(); ++i)
        gates[i] = (i % capacity == 0 ? 0.0f : gates[i - 1]) + step(random);
    patterns_.ring_gate = upload(gates);
}

void LinearBench::allocate() {
    const auto heads = static_cast<std::size_t>(shape_.v_heads);
    qkv_ = DeviceArray<__nv_bfloat16>(slots_ * qkv_width(shape_));
    a_ = DeviceArray<__nv_bfloat16>(slots_ * heads);
    b_ = DeviceArray<__nv_bfloat16>(slots_ * heads);
    out_ = DeviceArray<__nv_bfloat16>(slots_ * value_width(shape_));
    state_ = DeviceArray<float>(slots_ * static_cast<std::size_t>(state_elements(shape_)));
    tile(qkv_, patterns_.qkv, stream_);
    tile(a_, patterns_.a, stream_);
    tile(b_, patterns_.b, stream_);
    if (capacity_ == 0) return;
    const auto capacity = static_cast<std::size_t>(capacity_);
    ring_k_ = DeviceArray<__nv_bfloat16>(slots_ * key_width(shape_) * capacity);
    ring_u_ = DeviceArray<__nv_bfloat16>(slots_ * value_width(shape_) * capacity);
    ring_gate_ = DeviceArray<float>(slots_ * heads * capacity);
}

void LinearBench::prepare(const Case& c) {
    case_ = c;
    sets_ = rotation_sets(c, l2_capacity_);
    const auto batch = static_cast<std::size_t>(c.batch);
    stride_ = (batch + 15) / 16 * 16;

    std::vector<std::int32_t> order(slots_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed_ + 1));
    slot_.assign(static_cast<std::size_t>(sets_) * stride_, -1);
    for (std::size_t set = 0; set < static_cast<std::size_t>(sets_); ++set) {
        std::copy_n(order.data() + set * batch, batch, slot_.data() + set * stride_);
    }
    device_slot_ = upload(slot_);

    tile(state_, patterns_.state, stream_);
    if (capacity_ > 0) {
        phases_ = row_phases(c, seed_ + 2);
        device_fill_ = upload(phases_.fill);
        device_flush_ = upload(phases_.flush);
        tile(ring_k_, patterns_.ring_k, stream_);
        tile(ring_u_, patterns_.ring_u, stream_);
        tile(ring_gate_, patterns_.ring_gate, stream_);
    }
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
}

LinearDecodeParams LinearBench::params(int set) const {
    const std::size_t first_row = static_cast<std::size_t>(set) * static_cast<std::size_t>(case_.batch);
    const auto heads = static_cast<std::size_t>(shape_.v_heads);
    LinearDecodeParams p;
    p.shape = shape_;
    p.batch = case_.batch;
    p.slots = static_cast<int>(slots_);
    p.qkv = qkv_.data() + first_row * qkv_width(shape_);
    p.a = a_.data() + first_row * heads;
    p.b = b_.data() + first_row * heads;
    p.a_log = device_a_log_.data();
    p.dt_bias = device_dt_bias_.data();
    p.slot = device_slot_.data() + static_cast<std::size_t>(set) * stride_;
    p.state = state_.data();
    p.out = out_.data() + first_row * value_width(shape_);
    p.ring_capacity = capacity_;
    p.ring_k = ring_k_.data();
    p.ring_u = ring_u_.data();
    p.ring_gate = ring_gate_.data();
    p.fill = device_fill_.data();
    p.flush = device_flush_.data();
    return p;
}

RowSnapshot LinearBench::snapshot(int row) const {
    const auto index = static_cast<std::size_t>(row);
    const auto slot = static_cast<std::size_t>(slot_[index]);
    RowSnapshot r;
    r.row = row;
    r.qkv = download(qkv_, slots_, index);
    r.a = download(a_, slots_, index);
    r.b = download(b_, slots_, index);
    r.out = download(out_, slots_, index);
    r.state = download(state_, slots_, slot);
    if (capacity_ > 0) {
        r.fill = phases_.fill[index];
        r.flush = phases_.flush[index] != 0;
        r.ring_k = download(ring_k_, slots_, slot);
        r.ring_u = download(ring_u_, slots_, slot);
        r.ring_gate = download(ring_gate_, slots_, slot);
    }
    return r;
}

Verification LinearBench::verify() {
    KVSIM_CUDA_CALL(cudaMemset(out_.data(), 0xff, out_.bytes()));  // NaN in bf16
    const std::vector<int> rows = sampled_rows(case_.batch, phases_.flush, kComparedRows);
    std::vector<RowSnapshot> before, after;
    for (const int row : rows) before.push_back(snapshot(row));
    Verification result;
    if (const cudaError_t error = launches().enqueue(0, stream_); error != cudaSuccess) {
        result.fail(fmt::format("the launch was refused: {}", cudaGetErrorName(error)));
        return result;
    }
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
    for (const int row : rows) after.push_back(snapshot(row));

    std::vector<__nv_bfloat16> outputs(static_cast<std::size_t>(case_.batch) * value_width(shape_));
    out_.download(0, outputs);
    const auto written = std::count_if(outputs.begin(), outputs.end(),
                                       [](__nv_bfloat16 x) { return std::isfinite(widen(x)); });
    if (written != static_cast<std::ptrdiff_t>(outputs.size())) {
        result.fail(fmt::format("{} of {} outputs are missing or not finite",
                                static_cast<std::ptrdiff_t>(outputs.size()) - written, outputs.size()));
    }
    const RowContext context{shape_, capacity_, a_log_, dt_bias_};
    std::vector<std::future<Verification>> checks;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        checks.push_back(
            std::async(std::launch::async, check_row, context, std::cref(before[i]), std::cref(after[i])));
    }
    for (std::future<Verification>& check : checks) {
        const Verification one = check.get();
        result.max_error = std::max(result.max_error, one.max_error);
        if (!one.passed()) result.fail(one.failure);
    }
    return result;
}

Launches LinearBench::launches() const {
    const auto launch =
        case_.kernel == Kernel::kLinearRecurrent ? launch_linear_recurrent : launch_linear_buffered;
    return {sets_, [this, launch](int set, cudaStream_t stream) { return launch(params(set), stream); }};
}

}  // namespace kvsim::calibrate
