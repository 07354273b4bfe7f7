#include "sim/model/request_bytes.hpp"

#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_linear_layer.hpp"

namespace kvsim {

namespace {

constexpr std::int64_t kBytesPerValue = 2;  // bf16: KV cache, convolution windows

std::int64_t kv_token_values(const GqaMixer& m) {
    return 2LL * m.kv_heads * m.head_dim;
}
std::int64_t kv_token_values(const MlaMixer& m) {
    return std::int64_t{m.kv_latent} + m.rope_dim;
}

Bytes kv_layer_bytes(const LayerKind& kind) {
    if (!kind.attention) return Bytes(0);
    return Bytes(kBytesPerValue *
                 std::visit([](const auto& m) { return kv_token_values(m); }, *kind.attention));
}

}  // namespace

Bytes state_bytes_per_request(const ModelSpec& model, StateFormat state) {
    const LinearMixer* mixer = linear_mixer(model);
    if (mixer == nullptr) return Bytes(0);
    return Bytes(linear_layers(model) * state_bytes(linear_shape(*mixer, state)));
}

Bytes conv_bytes_per_request(const ModelSpec& model) {
    const LinearMixer* mixer = linear_mixer(model);
    if (mixer == nullptr || mixer->conv_kernel == 0) return Bytes(0);
    const std::int64_t window =
        conv_channels(linear_shape(*mixer, StateFormat::kFp32)) * (mixer->conv_kernel - 1);
    return Bytes(linear_layers(model) * window * kBytesPerValue);
}

Bytes ring_bytes_per_request(const ModelSpec& model, int ring_capacity, RecordFormat records) {
    const LinearMixer* mixer = linear_mixer(model);
    if (mixer == nullptr) return Bytes(0);
    LinearShape shape = linear_shape(*mixer, StateFormat::kFp32);  // a record is the same beside any state
    shape.records = records;
    return Bytes(linear_layers(model) * ring_capacity * record_bytes(shape));
}

Bytes kv_bytes_per_token(const ModelSpec& model) {
    Bytes sum;
    for (const LayerKind& kind : model.kinds) sum += kv_layer_bytes(kind) * model.count(kind);
    return sum;
}

Bytes mtp_kv_bytes_per_token(const ModelSpec& model) {
    Bytes sum;
    for (const char letter : model.mtp_pattern) sum += kv_layer_bytes(model.kind(letter));
    return sum;
}

}  // namespace kvsim
