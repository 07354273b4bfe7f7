#include "kernels/calibrate/product_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/calibrate/stored_numbers.hpp"

namespace kvsim::calibrate {
namespace {

// 16-byte pieces, so that copies are fast; a prime number of them, so that rows do not repeat each other.
constexpr std::size_t kPatternNumbers = 8 * std::size_t{125'003};
constexpr int kPlacesPerProduct = 64;

std::vector<float> row(const DeviceArray<std::uint16_t>& matrix, std::size_t index, int width) {
    std::vector<std::uint16_t> words(static_cast<std::size_t>(width));
    matrix.download(index * words.size(), words);
    return decode(std::as_bytes(std::span(words)), NumberFormat::kBf16);
}

std::vector<float> normal(std::mt19937_64& random) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(kPatternNumbers);
    for (float& value : values) value = distribution(random);
    return values;
}

// bf16 numbers on the device.
DeviceArray<std::byte> pattern(std::vector<float> values, double scale) {
    for (float& value : values) value *= static_cast<float>(scale);
    const std::vector<std::byte> stored = encode(values, NumberFormat::kBf16);
    return DeviceArray<std::byte>{std::span<const std::byte>(stored)};
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
}

}  // namespace

ProductBench::ProductBench(std::span<const Product> round, OperandData data, std::uint64_t seed,
                           cudaStream_t stream)
    : round_(round.begin(), round.end()), runner_(round) {
    std::mt19937_64 random(seed);
    const std::vector<float> activations = normal(random), weights = normal(random);
    std::map<int, DeviceArray<std::byte>> weights_of_k;
    const DeviceArray<std::byte> activations_pattern = pattern(activations, 1.0);
    const auto operand = [&](int rows, int columns, const DeviceArray<std::byte>& from) {
        Bf16Array array(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
        if (data == OperandData::kZeros) {
            KVSIM_CUDA_CALL(cudaMemsetAsync(array.data(), 0, array.bytes(), stream));
        } else {
            tile(array.data(), array.bytes(), from.data(), from.bytes(), stream);
        }
        return array;
    };
    std::size_t outputs = 0;
    for (const Product& p : round_) {
        if (activations_.count({p.m, p.k}) == 0)
            activations_.emplace(std::pair(p.m, p.k), operand(p.m, p.k, activations_pattern));
        if (weights_of_k.count(p.k) == 0) weights_of_k.emplace(p.k, pattern(weights, 1.0 / std::sqrt(p.k)));
        weights_.push_back(operand(p.n, p.k, weights_of_k.at(p.k)));
        outputs = std::max(outputs, static_cast<std::size_t>(p.m) * static_cast<std::size_t>(p.n));
    }
    output_ = Bf16Array(outputs);
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream));  // before the patterns go
}

void ProductBench::enqueue(std::size_t number, cudaStream_t stream) const {
    const std::size_t index = number % round_.size();
    runner_.enqueue(index, {activations(round_[index]).data(), weights_[index].data(), output_.data()},
                    stream);
}

Verification ProductBench::verify(cudaStream_t stream) const {
    Verification result;
    for (std::size_t i = 0; i < round_.size() && result.passed(); ++i) {
        const Product& p = round_[i];
        KVSIM_CUDA_CALL(cudaMemsetAsync(output_.data(), 0xff, output_.bytes(), stream));
        enqueue(i, stream);
        KVSIM_CUDA_CALL(cudaStreamSynchronize(stream));
        double difference = 0.0, norm = 0.0;
        for (int place = 0; place < kPlacesPerProduct; ++place) {
            // Corners and all between, not on a diagonal.
            const auto y = static_cast<std::size_t>(std::int64_t{p.m - 1} * place / (kPlacesPerProduct - 1));
            const auto x = static_cast<std::size_t>(std::int64_t{p.n - 1} * (place * 37 % kPlacesPerProduct) /
                                                    (kPlacesPerProduct - 1));
            const double expected = dot(row(activations(p), y, p.k), row(weights_[i], x, p.k));
            std::array<std::uint16_t, 1> word{};
            output_.download(y * static_cast<std::size_t>(p.n) + x, word);
            const double actual = decode(std::as_bytes(std::span(word)), NumberFormat::kBf16).front();
            difference += (actual - expected) * (actual - expected);
            norm += expected * expected;
        }
        const double error = norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
        result.max_error = std::max(result.max_error, error);
        if (!(error <= kBf16Tolerance))
            result.fail(fmt::format("product {} x {} x {}: relative error {:.2g}", p.m, p.n, p.k, error));
    }
    return result;
}

}  // namespace kvsim::calibrate
