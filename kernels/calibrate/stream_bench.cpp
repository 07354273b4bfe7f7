#include "kernels/calibrate/stream_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "kernels/launch.hpp"
#include "kernels/stream_probe.hpp"

namespace kvsim::calibrate {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
constexpr std::size_t kWordsPerPiece = 4;         // of 16 bytes
constexpr std::size_t kPatternWords = 1'000'003;  // prime, so that a misplaced piece does not match by chance
constexpr std::size_t kWindowWords = 4096;        // compared at each of three places

std::size_t pool_words(std::span<const Case> group, const RotationLimits& limits) {
    std::size_t bytes = 0;
    for (const Case& c : group) {
        bytes = std::max(bytes,
                         std::size_t(rotation_sets(c, limits)) * static_cast<std::size_t>(c.bytes.value()));
    }
    return bytes / kWord;
}

}  // namespace

StreamBench::StreamBench(std::span<const Case> group, const RotationLimits& limits, std::uint64_t seed,
                         cudaStream_t stream)
    : limits_(limits), stream_(stream) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    std::vector<std::uint32_t> pattern(kPatternWords);
    std::generate(pattern.begin(), pattern.end(), std::ref(random));
    pattern_ = DeviceArray<std::uint32_t>(std::span<const std::uint32_t>(pattern));
    source_ = DeviceArray<std::uint32_t>(pool_words(group, limits));
    const bool copies = group.front().kernel == Kernel::kStreamCopy;
    destination_ = DeviceArray<std::uint32_t>(copies ? source_.size() : kWordsPerPiece);
}

void StreamBench::fill() {
    tile(source_, pattern_, stream_);
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
}

void StreamBench::prepare(const Case& c) {
    case_ = c;
    fill();
}

Launches StreamBench::launches() const {
    const bool copies = case_.kernel == Kernel::kStreamCopy;
    return {rotation_sets(case_, limits_), [this, copies](int set, cudaStream_t stream) {
                const std::size_t first = static_cast<std::size_t>(set) * (bytes() / kWord);
                StreamProbeParams p;
                p.source = source_.data() + first;
                p.destination = destination_.data() + (copies ? first : 0);
                p.bytes = bytes();
                return copies ? launch_stream_copy(p, stream) : launch_stream_read(p, stream);
            }};
}

Verification StreamBench::verify() {
    return case_.kernel == Kernel::kStreamCopy ? verify_copy() : verify_read();
}

Verification StreamBench::verify_copy() {
    Verification result;
    KVSIM_CUDA_CALL(cudaMemset(destination_.data(), 0xff, destination_.bytes()));
    KVSIM_CUDA_CALL(launches().enqueue(0, stream_));
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
    const std::size_t words = bytes() / kWord;
    const std::size_t window = std::min(kWindowWords, words);
    std::vector<std::uint32_t> from(window), to(window);
    for (const std::size_t first : {std::size_t{0}, (words - window) / 2, words - window}) {
        source_.download(first, from);
        destination_.download(first, to);
        if (from != to) result.fail(fmt::format("the copy differs from its source near word {}", first));
    }
    std::array<std::uint32_t, kWordsPerPiece> behind{};
    destination_.download(words, behind);  // belongs to set 1
    if (std::any_of(behind.begin(), behind.end(), [](std::uint32_t x) { return x != 0xffffffffu; })) {
        result.fail("the copy wrote behind its end");
    }
    return result;
}

// Whether the probe sees a mark at one word of a source of zeros.
bool StreamBench::mark_seen(std::size_t word) {
    KVSIM_CUDA_CALL(cudaMemset(destination_.data(), 0, destination_.bytes()));
    KVSIM_CUDA_CALL(
        cudaMemcpy(source_.data() + word, &kStreamReadMark, sizeof kStreamReadMark, cudaMemcpyHostToDevice));
    KVSIM_CUDA_CALL(launches().enqueue(0, stream_));
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
    KVSIM_CUDA_CALL(cudaMemset(source_.data() + word, 0, kWord));
    std::array<std::uint32_t, 1> seen{};
    destination_.download(0, seen);
    return seen[0] == kStreamReadMark;
}

Verification StreamBench::verify_read() {
    Verification result;
    KVSIM_CUDA_CALL(cudaMemset(source_.data(), 0, source_.bytes()));
    const std::size_t words = bytes() / kWord;
    for (const std::size_t word : {std::size_t{0}, words / 2, words - 1}) {
        if (!mark_seen(word)) result.fail(fmt::format("word {} of {} was not read", word, words));
    }
    if (mark_seen(words)) result.fail("the probe read behind its end");  // a word of set 1
    fill();
    return result;
}

Launches EmptyBench::launches() const {
    return {1, [](int, cudaStream_t stream) { return launch_empty(stream); }};
}

}  // namespace kvsim::calibrate
