#include "kernels/calibrate/linear_pools.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/traffic_linear.hpp"

namespace kvsim::calibrate {
namespace {

// Prime, so that a kernel that mixes up tokens or slots at a power of two meets other data.
constexpr std::size_t kDistinctTokens = 61;
constexpr std::size_t kDistinctSlots = 3;
constexpr double kStateScale = 0.1;

std::size_t key_width(const LinearShape& s) {
    return std::size_t(s.k_heads) * s.k_dim;
}
std::size_t value_width(const LinearShape& s) {
    return std::size_t(s.v_heads) * s.v_dim;
}

std::vector<float> normal(std::size_t count, double scale, std::mt19937_64& random) {
    std::normal_distribution<float> distribution(0.0f, static_cast<float>(scale));
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random);
    return values;
}

NumberFormat state_format(StateFormat format) {
    switch (format) {
        case StateFormat::kFp32:
            return NumberFormat::kFp32;
        case StateFormat::kSplit:
            return NumberFormat::kHighPlane;
        default:
            return NumberFormat::kBf16;
    }
}

// The records [heads, capacity, dim] of a slot with their elements in order; position(element, index) says
// where a record at a ring index keeps an element.
template <class Position>
std::vector<float> in_plain_order(const std::vector<float>& stored, int capacity, int dim,
                                  Position position) {
    std::vector<float> plain(stored.size());
    for (std::size_t record = 0; record * dim < plain.size(); ++record) {
        const int at = static_cast<int>(record % static_cast<std::size_t>(capacity));
        for (int i = 0; i < dim; ++i)
            plain[record * dim + i] = stored[record * dim + static_cast<std::size_t>(position(i, at))];
    }
    return plain;
}

DeviceArray<float> upload(const std::vector<float>& host) {
    return DeviceArray<float>(std::span<const float>(host));
}

}  // namespace

DevicePool::DevicePool(NumberFormat format, std::size_t width, std::size_t blocks)
    : format_(format), block_bytes_(width * bytes_per_number(format)), memory_(blocks * block_bytes_) {}

DevicePool::DevicePool(NumberFormat format, std::size_t width, std::size_t blocks,
                       std::span<const float> pattern)
    : DevicePool(format, width, blocks) {
    pattern_ = DeviceArray<std::byte>(std::span<const std::byte>(encode(pattern, format)));
}

void DevicePool::restore(std::size_t blocks, cudaStream_t stream) {
    if (pattern_.size() == 0) return;
    tile(memory_.data(), blocks * block_bytes_, pattern_.data(), pattern_.bytes(), stream);
}

void DevicePool::poison(std::size_t blocks) {
    if (block_bytes_ > 0) KVSIM_CUDA_CALL(cudaMemset(memory_.data(), 0xff, blocks * block_bytes_));
}

std::vector<std::byte> DevicePool::bytes(std::size_t first, std::size_t blocks) const {
    std::vector<std::byte> values(blocks * block_bytes_);
    if (!values.empty()) memory_.download(first * block_bytes_, values);
    return values;
}

std::vector<float> DevicePool::numbers(std::size_t first, std::size_t blocks) const {
    return decode(bytes(first, blocks), format_);
}

std::byte* DevicePool::at(std::size_t block) const {
    return block_bytes_ == 0 ? nullptr : memory_.data() + block * block_bytes_;
}

LinearPools::LinearPools(std::span<const Case> group, const RotationLimits& limits, std::uint64_t seed,
                         cudaStream_t stream)
    : shape_(group.front().shape), capacity_(group.front().buffer_length) {
    for (const Case& c : group) {
        const auto rows =
            static_cast<std::size_t>(rotation_sets(c, limits)) * static_cast<std::size_t>(c.batch);
        slots_ = std::max(slots_, rows);
        tokens_ = std::max(tokens_, rows * static_cast<std::size_t>(c.tokens));
    }
    std::mt19937_64 random(seed);
    make_weights(random);
    make_tokens(group.front().kernel == Kernel::kLinearVerifyStored, random);
    make_states(random);
    if (capacity_ > 0) make_rings(random);
    for (DevicePool* pool : {&qkv_, &a_, &b_}) pool->restore(tokens_, stream);
    restore_slots(slots_, stream);
}

void LinearPools::make_weights(std::mt19937_64& random) {
    // The ranges in which published layers are initialised: A in [1, 16], softplus(dt_bias) in [0.001, 0.1].
    std::uniform_real_distribution<double> rate(1.0, 16.0), log_step(std::log(1e-3), std::log(1e-1));
    for (int h = 0; h < shape_.v_heads; ++h) {
        a_log_.push_back(static_cast<float>(std::log(rate(random))));
        dt_bias_.push_back(static_cast<float>(std::log(std::expm1(std::exp(log_step(random))))));
    }
    device_a_log_ = upload(a_log_);
    device_dt_bias_ = upload(dt_bias_);
}

void LinearPools::make_tokens(bool stored, std::mt19937_64& random) {
    const auto inputs = [&](std::size_t width) {
        return DevicePool(NumberFormat::kBf16, width, tokens_, normal(kDistinctTokens * width, 1.0, random));
    };
    const auto heads = static_cast<std::size_t>(shape_.v_heads);
    qkv_ = inputs(2 * key_width(shape_) + value_width(shape_));
    a_ = inputs(heads);
    b_ = inputs(heads);
    out_ = DevicePool(NumberFormat::kBf16, value_width(shape_), tokens_);
    if (stored) {
        token_states_ =
            DevicePool(state_format(shape_.state), static_cast<std::size_t>(state_elements(shape_)), tokens_);
    }
}

void LinearPools::make_states(std::mt19937_64& random) {
    const auto width = static_cast<std::size_t>(state_elements(shape_));
    const std::vector<float> values = normal(kDistinctSlots * width, kStateScale, random);
    state_ = DevicePool(state_format(shape_.state), width, slots_, values);
    if (shape_.state == StateFormat::kSplit)
        state_low_ = DevicePool(NumberFormat::kLowPlane, width, slots_, values);
}

void LinearPools::make_rings(std::mt19937_64& random) {
    const auto capacity = static_cast<std::size_t>(capacity_);
    // Keys as they come in, like those of new tokens; u divided by their norm.
    const std::size_t keys = key_width(shape_) * capacity, values = value_width(shape_) * capacity;
    ring_keys_ = DevicePool(NumberFormat::kBf16, keys, slots_, normal(kDistinctSlots * keys, 1.0, random));
    ring_u_ =
        DevicePool(shape_.records == RecordFormat::kFp32U ? NumberFormat::kFp32 : NumberFormat::kBf16, values,
                   slots_, normal(kDistinctSlots * values, 1.0 / std::sqrt(double(shape_.k_dim)), random));

    // Sums of log gates are negative. They fall from record to record of a served ring; these are in no
    // order, since a ring may begin at any index: weights of up to e, which kernels compute in the same way.
    std::uniform_real_distribution<float> sum(-1.0f, -0.001f);
    const std::size_t gates = static_cast<std::size_t>(shape_.v_heads) * capacity;
    std::vector<float> sums(kDistinctSlots * gates);
    for (float& value : sums) value = sum(random);
    ring_gates_ = DevicePool(NumberFormat::kFp32, gates, slots_, sums);
}

void LinearPools::restore_slots(std::size_t slots, cudaStream_t stream) {
    for (DevicePool* pool : {&state_, &state_low_, &ring_keys_, &ring_u_, &ring_gates_})
        pool->restore(slots, stream);
}

void LinearPools::poison(std::size_t tokens) {
    out_.poison(tokens);
    token_states_.poison(tokens);
}

LinearParams LinearPools::params(std::size_t first_token) const {
    LinearParams p;
    p.shape = shape_;
    p.slots = static_cast<int>(slots_);
    p.qkv = reinterpret_cast<const __nv_bfloat16*>(qkv_.at(first_token));
    p.a = reinterpret_cast<const __nv_bfloat16*>(a_.at(first_token));
    p.b = reinterpret_cast<const __nv_bfloat16*>(b_.at(first_token));
    p.a_log = device_a_log_.data();
    p.dt_bias = device_dt_bias_.data();
    p.state = state_.at(0);
    p.state_low = state_low_.at(0);
    p.out = reinterpret_cast<__nv_bfloat16*>(out_.at(first_token));
    p.ring_capacity = capacity_;
    p.ring_k = reinterpret_cast<__nv_bfloat16*>(ring_keys_.at(0));
    p.ring_u = ring_u_.at(0);
    p.ring_gate = reinterpret_cast<float*>(ring_gates_.at(0));
    p.token_states = token_states_.at(first_token);
    return p;
}

RowSnapshot LinearPools::slot_snapshot(std::size_t slot) const {
    RowSnapshot row;
    row.state = shape_.state == StateFormat::kSplit
                    ? decode_planes(state_.bytes(slot, 1), state_low_.bytes(slot, 1))
                    : state_.numbers(slot, 1);
    row.ring_k =
        in_plain_order(ring_keys_.numbers(slot, 1), capacity_, shape_.k_dim,
                       [this](int element, int at) { return ring_key_position(shape_.state, element, at); });
    row.ring_u =
        in_plain_order(ring_u_.numbers(slot, 1), capacity_, shape_.v_dim,
                       [this](int element, int at) { return ring_u_position(shape_.records, element, at); });
    row.ring_gate = ring_gates_.numbers(slot, 1);
    return row;
}

void LinearPools::read_inputs(std::size_t first_token, std::size_t count, RowSnapshot& row) const {
    row.qkv = qkv_.numbers(first_token, count);
    row.a = a_.numbers(first_token, count);
    row.b = b_.numbers(first_token, count);
}

void LinearPools::read_outputs(std::size_t first_token, std::size_t count, RowSnapshot& row) const {
    row.out = out_.numbers(first_token, count);
    row.states = token_states_.numbers(first_token, count);
}

}  // namespace kvsim::calibrate
