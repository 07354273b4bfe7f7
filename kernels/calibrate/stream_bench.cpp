#include "kernels/calibrate/stream_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <vector>

#include "kernels/stream_probe.hpp"
#include "kernels/traffic_stream.hpp"

namespace kvsim::calibrate {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
constexpr std::size_t kWordsPerPiece = 4;         // of 16 bytes
constexpr std::size_t kPatternWords = 1'000'003;  // prime, so that a misplaced piece does not match by chance
constexpr std::size_t kWindowWords = 4096;        // compared at each of three places

constexpr std::uint32_t kPoison = 0xffffffffu;
constexpr std::size_t kWordsPerVector = kAppendVectorBytes / kWord;

// Of the sets of every case, each with `words` for a case.
template <class Words>
std::size_t pool_words(std::span<const Case> group, const RotationLimits& limits, Words words) {
    std::size_t most = 0;
    for (const Case& c : group) most = std::max(most, std::size_t(rotation_sets(c, limits)) * words(c));
    return most;
}
std::size_t source_words(const Case& c) {
    return static_cast<std::size_t>(c.bytes.value()) / kWord;
}
// Outputs and rings of a set of the append probe.
std::size_t append_words(const Case& c) {
    return static_cast<std::size_t>(kAppendRecords * appended_bytes(c.bytes.value())) / kWord;
}

// What a block of the append probe writes, given what it reads (kernels/stream_probe.hpp).
std::array<std::uint32_t, kAppendWords> append_sums(std::span<const std::uint32_t> block) {
    std::array<std::uint32_t, kAppendWords> sums{};
    for (std::size_t i = 0; i < block.size(); ++i) {
        const std::size_t warp = i / (block.size() / 2);
        sums[8 * warp + i / kWordsPerPiece % 8] ^= block[i];
    }
    return sums;
}

// The output, u and keys of a pair of heads, over all records of their rings.
struct HeadPair {
    std::vector<std::uint32_t> out, ring_u, ring_k;
    HeadPair()
        : out(2 * kWordsPerVector, kPoison),
          ring_u(2 * kAppendRecords * kWordsPerVector, kPoison),
          ring_k(kAppendRecords * kWordsPerVector, kPoison) {}
    bool operator==(const HeadPair&) const = default;
};

// What the probe makes of the pair's states, [kAppendUnit] bytes.
HeadPair appended(std::span<const std::uint32_t> states, std::size_t record) {
    HeadPair pair;
    constexpr std::size_t kBlockWords = kAppendBlockBytes / kWord;
    for (std::size_t block = 0; block < kAppendBlocksPerKey; ++block) {
        const auto sums = append_sums(states.subspan(block * kBlockWords, kBlockWords));
        const std::size_t head = block / kAppendBlocksPerHead, part = block % kAppendBlocksPerHead;
        std::ranges::copy(sums, pair.out.begin() + block * kAppendWords);
        std::ranges::copy(sums, pair.ring_u.begin() + (head * kAppendRecords + record) * kWordsPerVector +
                                    part * kAppendWords);
        if (block > 0) continue;
        for (std::size_t i = 0; i < kWordsPerVector; ++i)
            pair.ring_k[record * kWordsPerVector + i] = sums[i / 32 * 8 + i % 8];
    }
    return pair;
}

}  // namespace

StreamBench::StreamBench(std::span<const Case> group, const RotationLimits& limits, std::uint64_t seed,
                         cudaStream_t stream)
    : limits_(limits), stream_(stream) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    std::vector<std::uint32_t> pattern(kPatternWords);
    std::generate(pattern.begin(), pattern.end(), std::ref(random));
    pattern_ = DeviceArray<std::uint32_t>(std::span<const std::uint32_t>(pattern));
    source_ = DeviceArray<std::uint32_t>(pool_words(group, limits, source_words));
    const auto destination_words = [&] {
        switch (group.front().kernel) {
            case Kernel::kStreamCopy:
                return source_.size();
            case Kernel::kStreamAppend:
                return pool_words(group, limits, append_words);
            default:
                return kWordsPerPiece;
        }
    };
    destination_ = DeviceArray<std::uint32_t>(destination_words());
}

void StreamBench::fill() {
    tile(source_, pattern_, stream_);
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));
}

void StreamBench::prepare(const Case& c) {
    case_ = c;
    fill();
}

// Of the launches() in turn: all sets with one record, then with the next.
StreamAppendParams StreamBench::append_params(int launch) const {
    const int sets = rotation_sets(case_, limits_);
    const auto set = static_cast<std::size_t>(launch % sets);
    StreamAppendParams p;
    p.source = source_.data() + set * source_words(case_);
    p.bytes = bytes();
    p.record = launch / sets;
    const std::size_t heads = bytes() / (kAppendUnit / 2);
    std::uint32_t* const outputs = destination_.data() + set * append_words(case_);
    p.out = outputs + static_cast<std::size_t>(p.record) * heads * kWordsPerVector;
    p.ring_u = outputs + kAppendRecords * heads * kWordsPerVector;
    p.ring_k = p.ring_u + kAppendRecords * heads * kWordsPerVector;
    return p;
}

Launches StreamBench::launches() const {
    if (case_.kernel == Kernel::kStreamAppend) {
        const int count = rotation_sets(case_, limits_) * rotations_to_repeat(case_, limits_);
        return {count, [this](int launch, cudaStream_t stream) {
                    return launch_stream_append(append_params(launch), stream);
                }};
    }
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
    switch (case_.kernel) {
        case Kernel::kStreamCopy:
            return verify_copy();
        case Kernel::kStreamAppend:
            return verify_append();
        default:
            return verify_read();
    }
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
    if (std::any_of(behind.begin(), behind.end(), [](std::uint32_t x) { return x != kPoison; })) {
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

Verification StreamBench::verify_append() {
    Verification result;
    KVSIM_CUDA_CALL(cudaMemset(destination_.data(), 0xff, destination_.bytes()));
    // Set 0, the last record that a rotation writes.
    const int launch = rotation_sets(case_, limits_) * (rotations_to_repeat(case_, limits_) - 1);
    KVSIM_CUDA_CALL(launches().enqueue(launch, stream_));
    KVSIM_CUDA_CALL(cudaStreamSynchronize(stream_));

    const StreamAppendParams p = append_params(launch);
    const auto download = [this](const std::uint32_t* from, std::span<std::uint32_t> to) {
        destination_.download(static_cast<std::size_t>(from - destination_.data()), to);
    };
    const std::size_t pairs = bytes() / kAppendUnit;
    std::vector<std::uint32_t> states(kAppendUnit / kWord);
    for (const std::size_t pair : {std::size_t{0}, pairs / 2, pairs - 1}) {
        source_.download(pair * states.size(), states);
        HeadPair written;
        download(p.out + pair * written.out.size(), written.out);
        download(p.ring_u + pair * written.ring_u.size(), written.ring_u);
        download(p.ring_k + pair * written.ring_k.size(), written.ring_k);
        if (written != appended(states, static_cast<std::size_t>(p.record)))
            result.fail(fmt::format("what was appended is wrong near head {} of {}", 2 * pair, 2 * pairs));
    }
    // Behind the outputs are those of another launch, or rings; behind the rings another set.
    std::array<std::uint32_t, kWordsPerPiece> behind_out{}, behind_rings{};
    download(p.out + 2 * pairs * kWordsPerVector, behind_out);
    download(p.ring_k + pairs * kAppendRecords * kWordsPerVector, behind_rings);
    for (const auto& behind : {behind_out, behind_rings}) {
        if (std::any_of(behind.begin(), behind.end(), [](std::uint32_t x) { return x != kPoison; }))
            result.fail("the probe wrote behind its end");
    }
    return result;
}

Launches EmptyBench::launches() const {
    return {1, [](int, cudaStream_t stream) { return launch_empty(stream); }};
}

}  // namespace kvsim::calibrate
