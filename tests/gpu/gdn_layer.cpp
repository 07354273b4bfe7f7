#include "tests/gpu/gdn_layer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/reference/rounding.hpp"
#include "kernels/traffic_linear.hpp"

namespace kvsim {
namespace {

using calibrate::NumberFormat;

constexpr int kDistinctStates = 5;  // slots repeat them

NumberFormat state_numbers(StateFormat format) {
    if (format == StateFormat::kFp32) return NumberFormat::kFp32;
    return format == StateFormat::kSplit ? NumberFormat::kHighPlane : NumberFormat::kBf16;
}
NumberFormat u_numbers(RecordFormat format) {
    return format == RecordFormat::kFp32U ? NumberFormat::kFp32 : NumberFormat::kBf16;
}

float bf16(double x) {
    return static_cast<float>(reference::round_to_bf16(x));
}
std::vector<float> bf16_normals(std::size_t count, Noise& noise) {
    std::vector<float> values(count);
    for (float& x : values) x = bf16(noise.normal());
    return values;
}

std::size_t qkv_width(const LinearShape& s) {
    return std::size_t(2 * s.k_heads) * s.k_dim + std::size_t(s.v_heads) * s.v_dim;
}
std::size_t out_width(const LinearShape& s) {
    return std::size_t(s.v_heads) * s.v_dim;
}

// Of records [heads, capacity, dim], to the order in which kernels keep the elements of each, or back.
enum class Direction : std::uint8_t { kToStored, kToPlain };
template <class Position>
std::vector<float> reordered(const std::vector<float>& from, int capacity, int dim, Direction direction,
                             Position position) {
    std::vector<float> to(from.size());
    for (std::size_t record = 0; record * dim < from.size(); ++record) {
        const int at = static_cast<int>(record % std::size_t(capacity));
        for (int i = 0; i < dim; ++i) {
            const std::size_t plain = record * dim + i, stored = record * dim + position(i, at);
            if (direction == Direction::kToStored) to[stored] = from[plain];
            if (direction == Direction::kToPlain) to[plain] = from[stored];
        }
    }
    return to;
}
std::vector<float> reordered_keys(const std::vector<float>& keys, StateFormat format, int capacity,
                                  Direction direction) {
    return reordered(keys, capacity, 128, direction,
                     [format](int c, int at) { return ring_key_position(format, c, at); });
}
std::vector<float> reordered_u(const std::vector<float>& u, RecordFormat format, int capacity,
                               Direction direction) {
    return reordered(u, capacity, 128, direction,
                     [format](int r, int at) { return ring_u_position(format, r, at); });
}

auto launcher(Form form) {
    switch (form) {
        case Form::kBuffered:
            return launch_linear_buffered;
        case Form::kVerifyStored:
            return launch_linear_verify_stored;
        case Form::kVerifyBuffered:
            return launch_linear_verify_buffered;
        default:
            return launch_linear_recurrent;
    }
}

// One column of the tables of rows, of all launches.
template <class T, class Field>
std::vector<T> column(std::span<const Launch> launches, Field field) {
    std::vector<T> values;
    for (const Launch& launch : launches) {
        for (const Row& row : launch.rows) values.push_back(static_cast<T>(row.*field));
    }
    return values;
}

// Bytes of the states that the largest launch stores.
std::size_t token_state_bytes(const LinearShape& shape, std::span<const Launch> launches) {
    std::size_t most = 0;
    for (const Launch& launch : launches) {
        if (launch.form == Form::kVerifyStored) most = std::max(most, launch.rows.size() * launch.tokens);
    }
    return most * std::size_t(state_elements(shape)) *
           calibrate::bytes_per_number(state_numbers(shape.state));
}

DeviceArray<std::byte> encoded(std::span<const float> values, NumberFormat format) {
    return DeviceArray<std::byte>(std::span<const std::byte>(calibrate::encode(values, format)));
}
template <class T>
std::span<const T> view(const std::vector<T>& values) {
    return values;
}

const __nv_bfloat16* bf16_at(const DeviceArray<std::byte>& array, std::size_t element) {
    return reinterpret_cast<const __nv_bfloat16*>(array.data()) + element;
}

}  // namespace

GateWeights make_weights(const LinearShape& shape, Noise& noise) {
    GateWeights w;
    for (int h = 0; h < shape.v_heads; ++h) {
        w.a_log.push_back(-2.0f + 0.5f * noise.normal());
        w.dt_bias.push_back(0.5f * noise.normal());
    }
    return w;
}

reference::LinearToken TokenInputs::token(const LinearShape& shape, const GateWeights& weights,
                                          std::size_t index) const {
    const std::size_t width = qkv_width(shape), heads = std::size_t(shape.v_heads);
    return reference::prepare(shape, {weights.a_log, weights.dt_bias},
                              {view(qkv).subspan(index * width, width), view(a).subspan(index * heads, heads),
                               view(b).subspan(index * heads, heads)});
}

TokenInputs make_inputs(const LinearShape& shape, std::size_t tokens, Noise& noise) {
    const std::size_t heads = std::size_t(shape.v_heads);
    return {bf16_normals(tokens * qkv_width(shape), noise), bf16_normals(tokens * heads, noise),
            bf16_normals(tokens * heads, noise)};
}

TokenInputs make_inputs(const LinearShape& shape, const GateWeights& weights, std::size_t tokens,
                        double decay_low, Noise& noise) {
    TokenInputs inputs = make_inputs(shape, tokens, noise);
    for (std::size_t i = 0; i < inputs.a.size(); ++i) {
        const std::size_t head = i % std::size_t(shape.v_heads);
        const double decay = std::min(noise.uniform(decay_low, 1.0), 1.0 - 1e-6);
        // -log(decay) = exp(A_log) softplus(a + dt_bias)
        const double step = -std::log(decay) / std::exp(double(weights.a_log[head]));
        inputs.a[i] = bf16(std::log(std::expm1(step)) - weights.dt_bias[head]);
    }
    return inputs;
}

GdnLayer::GdnLayer(const LinearShape& shape, GateWeights weights, int capacity, int slots, bool zero_states,
                   Noise& noise)
    : shape_(shape),
      weights_(std::move(weights)),
      capacity_(capacity),
      slots_(slots),
      a_log_(view(weights_.a_log)),
      dt_bias_(view(weights_.dt_bias)),
      state_(slots * state_bytes()),
      state_low_(shape.state == StateFormat::kSplit ? slots * state_bytes() : 0),
      ring_k_(slots * key_count() * 2),
      ring_u_(slots * u_count() * calibrate::bytes_per_number(u_numbers(shape.records))),
      ring_gate_(std::size_t(slots) * shape.v_heads * capacity) {
    const auto elements = static_cast<std::size_t>(state_elements(shape));
    std::vector<std::vector<float>> states;
    for (int i = 0; i < kDistinctStates; ++i)
        states.push_back(zero_states ? std::vector<float>(elements) : noise.normals(elements, 0.1f));
    for (int s = 0; s < slots; ++s) {
        const auto& values = states[s % kDistinctStates];
        state_.upload(s * state_bytes(), calibrate::encode(values, state_numbers(shape.state)));
        if (state_low_.size() > 0)
            state_low_.upload(s * state_bytes(), calibrate::encode(values, NumberFormat::kLowPlane));
    }
}

std::size_t GdnLayer::state_bytes() const {
    return std::size_t(state_elements(shape_)) * calibrate::bytes_per_number(state_numbers(shape_.state));
}
std::size_t GdnLayer::key_count() const {
    return std::size_t(shape_.k_heads) * capacity_ * shape_.k_dim;
}
std::size_t GdnLayer::u_count() const {
    return std::size_t(shape_.v_heads) * capacity_ * shape_.v_dim;
}

calibrate::RowContext GdnLayer::context(Form form) const {
    return {shape_, capacity_, weights_.a_log, weights_.dt_bias, form};
}

void GdnLayer::make_records(int slot, int start, int fill, Noise& noise) {
    constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> keys(key_count(), kUnwritten), u(u_count(), kUnwritten);
    std::vector<float> gates(std::size_t(shape_.v_heads) * capacity_, kUnwritten);
    for (int j = 0; j < fill; ++j) {
        const std::size_t at = std::size_t((start + j) % capacity_);
        for (int h = 0; h < shape_.k_heads; ++h) {
            const auto key = keys.begin() + std::ptrdiff_t((std::size_t(h) * capacity_ + at) * 128);
            std::generate_n(key, 128, [&] { return noise.normal(); });
        }
        for (int h = 0; h < shape_.v_heads; ++h) {
            const auto values = u.begin() + std::ptrdiff_t((std::size_t(h) * capacity_ + at) * 128);
            std::generate_n(values, 128, [&] { return 0.1f * noise.normal(); });
            // Sums of log gates fall from record to record.
            const std::size_t ring = std::size_t(h) * capacity_;
            const float before = j == 0 ? 0.0f : gates[ring + std::size_t((start + j - 1) % capacity_)];
            gates[ring + at] = before - float(noise.uniform(0.001, 0.2));
        }
    }
    const auto stored_k = calibrate::encode(
        reordered_keys(keys, shape_.state, capacity_, Direction::kToStored), NumberFormat::kBf16);
    const auto stored_u = calibrate::encode(reordered_u(u, shape_.records, capacity_, Direction::kToStored),
                                            u_numbers(shape_.records));
    ring_k_.upload(slot * stored_k.size(), stored_k);
    ring_u_.upload(slot * stored_u.size(), stored_u);
    ring_gate_.upload(slot * gates.size(), gates);
}

std::vector<float> GdnLayer::state(int slot) const {
    const auto high = state_.download(slot * state_bytes(), state_bytes());
    if (shape_.state != StateFormat::kSplit) return calibrate::decode(high, state_numbers(shape_.state));
    return calibrate::decode_planes(high, state_low_.download(slot * state_bytes(), state_bytes()));
}

calibrate::RowSnapshot GdnLayer::slot(int slot) const {
    calibrate::RowSnapshot row;
    row.state = state(slot);
    if (capacity_ == 0) return row;
    const std::size_t key_bytes = key_count() * 2;
    const std::size_t u_bytes = u_count() * calibrate::bytes_per_number(u_numbers(shape_.records));
    const std::size_t gates = std::size_t(shape_.v_heads) * capacity_;
    row.ring_k =
        reordered_keys(calibrate::decode(ring_k_.download(slot * key_bytes, key_bytes), NumberFormat::kBf16),
                       shape_.state, capacity_, Direction::kToPlain);
    row.ring_u =
        reordered_u(calibrate::decode(ring_u_.download(slot * u_bytes, u_bytes), u_numbers(shape_.records)),
                    shape_.records, capacity_, Direction::kToPlain);
    row.ring_gate = ring_gate_.download(slot * gates, gates);
    return row;
}

LinearParams GdnLayer::params() const {
    LinearParams p;
    p.shape = shape_;
    p.slots = slots_;
    p.a_log = a_log_.data();
    p.dt_bias = dt_bias_.data();
    p.state = state_.data();
    p.state_low = state_low_.data();
    p.ring_capacity = capacity_;
    p.ring_k = reinterpret_cast<__nv_bfloat16*>(ring_k_.data());
    p.ring_u = ring_u_.data();
    p.ring_gate = ring_gate_.data();
    return p;
}

Player::Player(const GdnLayer& layer, std::span<const Launch> launches, const TokenInputs& inputs)
    : layer_(layer),
      launches_(launches),
      qkv_(encoded(inputs.qkv, NumberFormat::kBf16)),
      a_(encoded(inputs.a, NumberFormat::kBf16)),
      b_(encoded(inputs.b, NumberFormat::kBf16)),
      out_(inputs.a.size() * layer.shape().v_dim * 2),
      token_states_(token_state_bytes(layer.shape(), launches)),
      slot_(view(column<std::int32_t>(launches, &Row::slot))),
      start_(view(column<std::int32_t>(launches, &Row::start))),
      fill_(view(column<std::int32_t>(launches, &Row::fill))),
      flush_(view(column<std::uint8_t>(launches, &Row::flush))) {}

void Player::play(std::size_t count) {
    const LinearShape& shape = layer_.shape();
    for (; count > 0; --count, ++next_) {
        const Launch& launch = launches_[next_];
        LinearParams p = layer_.params();
        p.batch = static_cast<int>(launch.rows.size());
        p.tokens = launch.tokens;
        p.qkv = bf16_at(qkv_, next_token_ * qkv_width(shape));
        p.a = bf16_at(a_, next_token_ * shape.v_heads);
        p.b = bf16_at(b_, next_token_ * shape.v_heads);
        p.out = const_cast<__nv_bfloat16*>(bf16_at(out_, next_token_ * out_width(shape)));
        p.slot = slot_.data() + next_row_;
        p.start = start_.data() + next_row_;
        p.fill = fill_.data() + next_row_;
        p.flush = flush_.data() + next_row_;
        p.token_states = token_states_.data();
        require_cuda(launcher(launch.form)(p, nullptr));
        next_row_ += launch.rows.size();
        next_token_ += launch.rows.size() * launch.tokens;
    }
    require_cuda(cudaDeviceSynchronize());
}

std::vector<float> Player::outputs() const {
    return calibrate::decode(out_.download(0, out_.size()), NumberFormat::kBf16);
}

std::vector<float> Player::token_states(int row, int tokens) const {
    if (token_states_.size() == 0) return {};
    const NumberFormat format = state_numbers(layer_.shape().state);
    const std::size_t bytes =
        tokens * std::size_t(state_elements(layer_.shape())) * calibrate::bytes_per_number(format);
    return calibrate::decode(token_states_.download(row * bytes, bytes), format);
}

}  // namespace kvsim
